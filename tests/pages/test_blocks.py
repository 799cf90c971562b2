"""Promise: no diff, table or output in the pages is typed by hand or stale.

`make lint` regenerates those that need no run, `make docs` all.
"""

import re
from itertools import pairwise

import pytest

from conftest import ROOT
from tools.pages import blocks, reasons, variants
from tools.run import diffs, ideas
from tools.run.edit import patched
from tools.run.parts import parts
from tools.run.stages import EVERY, OWN, script

PAIRS = [*diffs.EXPLAINED, *pairwise(OWN)]  # the diffs explained on pages


def test_lint_names_the_part_with_a_stale_digit(tmp_path, monkeypatch, capsys):
    page = (ROOT / "beyond/README.md").read_text()
    length = len(diffs.lines("07_fsdp"))
    stale = page.replace(f"| {length} |", f"| {length + 1} |")
    (tmp_path / "README.md").write_text(stale)
    monkeypatch.setattr(blocks, "ROOT", tmp_path)
    monkeypatch.setattr(blocks, "PAGES", ["README.md"])
    with pytest.raises(SystemExit):
        blocks.check()
    assert capsys.readouterr().out == "README.md: beyond is stale: make docs\n"
    assert (tmp_path / "README.md").read_text() == stale
    (tmp_path / "README.md").write_text(page)
    blocks.check()


def texts(kind):
    """Return {name: content} of all generated parts of a kind."""
    found = {}
    for page in blocks.PAGES:
        for part in parts((ROOT / page).read_text()):
            if part.kind == kind:
                found[part.name] = part.shown.strip()
    return found


def test_every_stage_shows_what_it_prints():
    assert texts("printed").keys() == {f"printed {stage}" for stage in EVERY.values()}


def test_every_variant_is_shown_with_its_diff_and_its_curve():
    pages = "".join((ROOT / page).read_text() for page in blocks.PAGES)
    curves = "\n".join((texts("variants") | texts("moved")).values())
    names = [path.stem for path in variants.VARIANTS.glob("*.patch")]
    assert len(names) > 5
    for name in names:
        stage = variants.variant_stage(name)
        original = script(stage).read_text()
        patch = (variants.VARIANTS / f"{name}.patch").read_text()
        assert patched(original, patch) != original
        assert f"variant {name} -->" in pages or f"variants/{name}.patch)" in pages
        assert re.search(rf"(?m)^(\| `)?{name}\b.* \d\.\d{{6}}", curves), name


def test_every_hunk_has_its_reason():
    for pair in PAIRS:
        reasons.refuse_unexplained(*pair)
        for idea in ideas.ideas(*pair):
            text = idea.text
            assert len(text.split()) >= 5, f"no reason: {idea.title}"
            assert "](../" not in text and "[^" not in text  # also shown elsewhere
            assert "<" not in re.sub("(?s)`.*?`", "", text)  # and not in <details>


def test_a_hunk_that_no_page_explains_is_an_error(tmp_path, monkeypatch):
    text = (ROOT / "03_dp" / "README.md").read_text()
    monkeypatch.setattr(ideas, "folder", lambda stage: tmp_path)
    for wrong in "", "1 2", "3":  # none; hunk 2 twice; no such hunk
        page = text.replace("03_dp 1 |", f"03_dp {wrong} |")
        (tmp_path / "README.md").write_text(page)
        with pytest.raises(SystemExit, match="put each hunk N once"):
            reasons.refuse_unexplained("02_single_gpu", "03_dp")


def test_stale_parts_are_noticed():
    table = blocks.stages()
    lines = len((ROOT / "01_cpu/mnist.py").read_text().splitlines())
    assert not blocks.same(table, table.replace(f"| {lines} |", f"| {lines + 1} |"))
    diff = "```diff\n+ sampler.set_epoch(epoch)\n```"
    assert not blocks.same(diff, diff.replace("(epoch)", "(0)"))
    start = "```console\nepoch 1/3  "
    assert blocks.same(start + "loss 0.436164  0.15 s", start + "loss 0.436165  2.15 s")
    assert not blocks.same(start + "loss 0.436164", start + "loss 0.446164")
    assert not blocks.same(start + "test 876/1000", start + "test 896/1000")
    assert not blocks.same(start, start.replace("3", "4"))
