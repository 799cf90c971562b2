"""Promise: the page of symptoms lists everything that goes wrong and links the fix."""

import re

from conftest import ROOT
from tools.pages import symptoms
from tools.run.stages import MNIST, folder


def test_every_entry_of_every_page_is_a_row():
    text = symptoms.symptoms_by_kind()
    links = re.findall(r"\| \[stage \d+: [^]]+\]\((\S+#[^)\s]+)\)", text)
    assert len(set(links)) == len(links)
    rows = [link.partition("#")[0] for link in links]
    for stage in MNIST.values():
        count = 0
        for page in folder(stage).glob("*.md"):
            _, *chapter = page.read_text().split("\n## What goes wrong\n")
            entries = "".join(chapter).split("\n## ")[0].count("\n- ")
            assert entries == rows.count(f"../{page.relative_to(ROOT)}")
            count += entries
        assert count > 2
    assert len(rows) > 60
    for page in (ROOT / "exercises").glob("[0-9]*.md"):
        assert f"(../exercises/{page.name})" in text, "no row names this exercise"
