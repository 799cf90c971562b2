"""Promise: an HTML page is saved to OUT completely, and its links lead back."""

import re

import pytest

from conftest import ENV, ROOT, call
from tools.pages import columns, markup
from tools.run.stages import save_page


@pytest.mark.parametrize("name", ["side_by_side", "playground"])
def test_a_page_goes_where_out_says(name, tmp_path):
    """This works from a read-only checkout and under any locale; links lead back."""
    locale = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    result = call(["make", name, f"OUT={tmp_path}"], env={**ENV, **locale})
    assert (result.returncode, result.stderr) == (0, "")
    text = (tmp_path / f"{name}.html").read_text(encoding="utf-8")
    for link in re.findall(r'href="([^"#]*/)docs/SYMPTOMS.md', text):
        assert (tmp_path / link).samefile(ROOT)


def test_a_page_is_saved_whole_or_not_at_all(tmp_path, monkeypatch):
    monkeypatch.setenv("OUT", "README.md/x")
    with pytest.raises(SystemExit, match=r"^cannot write to .*README.md/x \(.*\)\. C"):
        save_page("page.html", "new")
    monkeypatch.setenv("OUT", str(tmp_path))
    save_page("page.html", "old")
    with pytest.raises(UnicodeEncodeError):
        save_page("page.html", "a new one \ud800")
    assert (tmp_path / "page.html").read_text() == "old"


def test_a_link_to_a_place_of_a_page_fits_the_repository_and_the_site():
    text = markup.html("[more](DETAILS.md#workers)", ROOT / "04_ddp")
    for suffix in ".md", ".html":
        way = f'href="../04_ddp/DETAILS{suffix}#workers"'
        assert way in markup.linked(text, "../", suffix)


def test_another_indentation_is_no_changed_word():
    assert columns.changed_words("loss = a", "    loss = b") == ([[7, 8]], [[11, 12]])
    assert columns.changed_words("loss = a", "    loss = a") == ([], [])
