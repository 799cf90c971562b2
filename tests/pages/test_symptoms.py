"""Promise: the page of symptoms has all that goes wrong, and says where the fix is."""

import re

import pytest

from conftest import ROOT
from tools.pages import symptoms
from tools.run.stages import EVERY, folder

CHAPTER = "\n## What goes wrong\n"


def test_every_entry_of_every_page_is_a_row():
    text = symptoms.symptoms_by_kind()
    rows = re.findall(r"\| \[stage \d+\]\((\S+)#what-goes-wrong\) \|", text)
    for stage in EVERY.values():
        pages = [page for page in folder(stage).glob("*.md") if CHAPTER in page.read_text()]
        assert pages, stage
        for page in pages:
            chapter = page.read_text().split(CHAPTER)[1].split("\n## ")[0]
            entries = chapter.count("\n- ")
            assert entries == rows.count(str(page.relative_to(ROOT))) > 2
    assert len(rows) > 60


@pytest.mark.parametrize(
    ("entry", "seen", "cause"),
    [
        (
            "**It ends.** gloo takes the wrong network. Name it.",
            "It ends",
            "gloo takes",
        ),
        ("**`It\n  ends`.** Rank 0 is late. Wait.", "`It ends`", "Rank 0 is"),
        ("**`It ends`**, or hangs. Rank 0 is late. Wait.", "`It ends`", "Rank 0 is"),
        ("**It ends** in epoch\n  2.\n  Rank 0 is late. Wait.", "It ends", "Rank 0 is"),
    ],
)
def test_the_cause_is_the_sentence_behind_what_you_see(
    entry, seen, cause, tmp_path, monkeypatch
):
    monkeypatch.setattr(symptoms, "ROOT", tmp_path)
    page = tmp_path / "04_ddp" / "README.md"
    page.parent.mkdir()
    page.write_text(f"## What goes wrong\n\n- {entry}\n")
    ((found, why, *_),) = symptoms.symptoms(page)
    assert found == seen
    assert why.startswith(cause)


def test_a_row_has_the_error_text_its_cause_and_an_exercise(tmp_path, monkeypatch):
    monkeypatch.setattr(symptoms, "ROOT", tmp_path)
    page = tmp_path / "04_ddp" / "README.md"
    page.parent.mkdir()
    page.write_text(
        "## What goes wrong\n\n- **`It\n  failed`**, or hangs. Rank 0 [is](x.md) "
        "late.[^a] Wait\n  ([a#1](https://a.b)). See [exercise 5]"
        "(../exercises/05_late.md).\n- **Nobody comes.** gloo looks elsewhere. Wait.\n"
        "\n## What to try\n\n- **not this**\n"
    )
    fix = "[stage 4](04_ddp/README.md#what-goes-wrong)"
    assert symptoms.symptoms(page) == [
        ["`It failed`", "Rank 0 is late.", fix, "[5](exercises/05_late.md)"],
        ["Nobody comes", "gloo looks elsewhere.", fix, "–"],
    ]
