"""Promise: no table and no output in the pages is typed by hand, and none is stale."""

import re

from conftest import ROOT
from tools import docs
from tools.stages import STAGES


def test_generated_parts_are_fresh():
    checked = 0
    for page in docs.PAGES:
        for name, text in docs.parts(page):
            fresh = docs.BLOCKS[name]()  # `output` runs make all
            assert docs.same(text, fresh), f"{page}: {name} is stale, run: make docs"
            checked += 1
            if name == "output":
                assert fresh.endswith("6 scripts, one loss curve\n```")
    assert checked == 2


def test_stale_parts_are_noticed():
    table = docs.stages()
    lines = len((ROOT / "01_cpu/mnist.py").read_text().splitlines())
    assert not docs.same(table, table.replace(f"| {lines} |", f"| {lines + 1} |"))
    start = "```console\nepoch 1/3  "
    assert docs.same(start + "loss 0.436164  0.15 s", start + "loss 0.436165  2.15 s")
    assert not docs.same(start + "loss 0.436164", start + "loss 0.446164")
    assert not docs.same(start + "test 876/1000", start + "test 896/1000")
    assert not docs.same(start, start.replace("3", "4"))


def test_links_between_pages_resolve():
    checked = 0
    for page in ROOT.glob("**/*.md"):
        if ".venv" in page.parts:
            continue
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page}: {target}"
                checked += 1
    assert checked >= 12
    assert all((ROOT / stage / "README.md").exists() for stage in STAGES)
