"""Promise: the page of symptoms has all that goes wrong, and says where the fix is."""

import re

from conftest import ROOT
from tools.pages import symptoms
from tools.run.stages import EVERY, folder


def test_every_entry_of_every_page_is_a_row():
    text = symptoms.symptoms_by_kind()
    links = re.findall(r"\| \[stage \d+\]\((\S+#\S+)\) \|", text)
    assert len(set(links)) == len(links)
    rows = [link.partition("#")[0] for link in links]
    for stage in EVERY.values():
        count = 0
        for page in folder(stage).glob("*.md"):
            _, *chapter = page.read_text().split("\n## What goes wrong\n")
            entries = "".join(chapter).split("\n## ")[0].count("\n- ")
            assert entries == rows.count(str(page.relative_to(ROOT)))
            count += entries
        assert count > 2
    assert len(rows) > 60
    for page in (ROOT / "exercises").glob("[0-9]*.md"):
        assert f"(exercises/{page.name})" in text, "no row names this exercise"


def test_a_row_has_the_error_text_its_cause_and_an_exercise(tmp_path, monkeypatch):
    monkeypatch.setattr(symptoms, "ROOT", tmp_path)
    page = tmp_path / "04_ddp" / "README.md"
    page.parent.mkdir()
    page.write_text(
        '## What goes wrong\n\n- <a id="failed"></a>\n  **`It\n  failed`**, or hangs. '
        "Rank 0 [is](x.md) late.[^a] Wait\n  ([a#1](https://a.b)). See [exercise 4]"
        '(../exercises/05_late.md).\n- <a id="alone"></a>\n  **Nobody comes.** gloo '
        'looks elsewhere. Wait.\n\n## What to try\n\n- <a id="b"></a>\n  **not this**\n'
    )
    fix = "[stage 4](04_ddp/README.md#{})".format
    assert symptoms.symptoms(page) == [
        ["`It failed`", "Rank 0 is late.", fix("failed"), "[5](exercises/05_late.md)"],
        ["Nobody comes", "gloo looks elsewhere.", fix("alone"), "–"],
    ]
