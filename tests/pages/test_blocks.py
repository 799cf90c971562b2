"""Promise: no diff, table or output in the pages is typed by hand, none is stale."""

import re
from itertools import pairwise

import pytest

from conftest import ROOT
from tools.lab.exercise import patched
from tools.pages import blocks, variants
from tools.run import diffs
from tools.run.stages import BEYOND, OWN, STAGES, folder, script

PAIRS = [*diffs.EXPLAINED, *pairwise(OWN)]  # the diffs that pages explain

# Parts that show a run of their own take minutes: one of each kind is looked at.
# `make docs` makes the others anew.
RUNS = ["variants", "own_curves", "left_out", "hang", "hello"]
LOOKED_AT = ["variants usual_loader", "left_out 09_pipeline"]
LOOKED_AT += ["hang mistake", "hang tools", "hang report"]


def parts():
    """Return every generated part: {(page, name): its text}."""
    found = {}
    for page in blocks.PAGES:
        for name, text in blocks.PART.findall((ROOT / page).read_text()):
            assert (page, name) not in found
            found[page, name] = text.strip()
    return found


def assert_fresh(page, name, text):
    """Assert that a generated part says what it would say if it was made now."""
    fresh = blocks.make(name)
    assert blocks.same(text, fresh), f"{page}: {name} is stale, run: make docs"


PRINTED_BEYOND = [f"printed {stage}" for stage in BEYOND.values()]


def test_generated_parts_are_fresh():
    checked = 0
    for (page, name), text in parts().items():
        if name.split()[0] not in RUNS and name not in PRINTED_BEYOND:
            assert_fresh(page, name, text)  # `printed` and `verdict` run make all
            checked += 1
    hunks = len([name for _, name in parts() if name.startswith("hunk ")])
    assert checked > hunks + len(STAGES) + 10
    assert f"\n{len(STAGES)} scripts, one loss curve\n```" in blocks.output("all")


@pytest.mark.xdist_group("make beyond")
def test_what_the_stages_beyond_print_is_fresh():
    found = [item for item in parts().items() if item[0][1] in PRINTED_BEYOND]
    assert len(found) == len(BEYOND)
    for (page, name), text in found:
        assert_fresh(page, name, text)
    line = f"\n{len(BEYOND)} scripts, one loss curve\n```"
    assert line in blocks.output("beyond")


def looked_at():
    """Return the parts of LOOKED_AT as parameters that any worker may take."""
    found = []
    for name in LOOKED_AT:
        found.append(pytest.param(name, marks=pytest.mark.xdist_group(name)))
    return found


@pytest.mark.parametrize("looked_at", looked_at())
def test_a_part_that_shows_a_run_is_fresh(looked_at):
    found = [item for item in parts().items() if item[0][1] == looked_at]
    assert found
    for (page, name), text in found:
        assert_fresh(page, name, text)


def test_every_kind_of_part_is_used():
    names = {name for _, name in parts()}
    assert {name.split()[0] for name in names} == blocks.BLOCKS.keys()
    assert set(LOOKED_AT) <= names
    assert "verdict all" in names  # on the front page


def test_every_variant_is_shown_with_its_diff_and_its_curve():
    found = parts()
    curves = [text for (_, name), text in found.items() if name.startswith("variants ")]
    names = [path.stem for path in variants.VARIANTS.glob("*.patch")]
    assert len(names) > 5
    for name in names:
        stage = variants.variant_stage(name)
        original = script(stage).read_text()
        assert patched(original, variants.VARIANTS / f"{name}.patch", stage) != original
        assert f"variant {name}" in [part for _, part in found]
        row = rf"^{name} +\d\.\d{{6}}"
        assert len(re.findall(row, "\n".join(curves), re.MULTILINE)) == 1


@pytest.mark.parametrize("pair", PAIRS, ids="->".join)
def test_every_hunk_has_its_reason(pair):
    reasons = blocks.reasons(*pair)
    assert len(reasons) == len(diffs.hunks(*pair)) > 0
    page = folder(pair[1]) / "README.md"
    shown = page.read_text()
    for number, (title, text) in enumerate(reasons, start=1):
        assert f'<a id="{pair[1]}.{number}"></a>\n' in shown
        assert f"\n### {title}\n" in shown
        words = len(text.split())
        assert words >= 5, f"{page} gives no reason for hunk {number}"
        assert "](../" not in text and "[^" not in text  # it is shown elsewhere too
        assert "<" not in re.sub("`.*?`", "", text)  # and not in a fold


PAGE = """# Two hunks at once, then the first one

<!-- generated: hunk 02_single_gpu 03_dp 2 3 | Use `b` and `c` -->
(the diff)
<!-- end -->

We need both.

<!-- generated: hunk 02_single_gpu 03_dp 1 | Import -->
<!-- end -->
For what follows.
### Another heading
No reason.
"""


def test_hunks_in_any_order_and_several_under_one_title(tmp_path, monkeypatch):
    hunks = [diffs.Hunk([], "main", [f"@@ {n}", f"+{n}"]) for n in (1, 2, 3)]
    monkeypatch.setattr(diffs, "hunks", lambda a, b: hunks)
    monkeypatch.setattr(blocks, "folder", lambda stage: tmp_path)
    (tmp_path / "README.md").write_text(PAGE)
    both = ("Use `b` and `c`", "We need both.")
    expected = [("Import", "For what follows."), both, both]
    assert blocks.reasons("02_single_gpu", "03_dp") == expected
    name = "hunk 02_single_gpu 03_dp 2 3 | Use `b` and `c`"
    assert blocks.make(name) == (
        '<a id="03_dp.2"></a>\n<a id="03_dp.3"></a>\n\n### Use `b` and `c`\n\n'
        "```diff\n@@ 2\n+2\n@@ 3\n+3\n```"
    )
    for wrong in "1 2", "4":  # hunk 2 would be told twice; there is no hunk 4
        (tmp_path / "README.md").write_text(PAGE.replace(" 1 |", f" {wrong} |"))
        with pytest.raises(SystemExit, match="put each hunk N once"):
            blocks.reasons("02_single_gpu", "03_dp")


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


def test_a_hunk_links_to_the_site_once_it_has_an_address(monkeypatch):
    link = "(https://example.org/side_by_side.html#03_dp-04_ddp.3)"
    assert link not in blocks.hunk("03_dp", "04_ddp", "3", title="A title")
    monkeypatch.setattr(blocks, "SITE", "https://example.org/")
    assert link in blocks.hunk("03_dp", "04_ddp", "3", title="A title")


def test_stale_parts_are_written_anew(tmp_path, monkeypatch, capsys):
    page = tmp_path / "page.md"
    start = "before\n<!-- generated: {} -->\n"
    monkeypatch.setattr(blocks, "ROOT", tmp_path)
    monkeypatch.setattr(blocks, "PAGES", ["page.md"])
    monkeypatch.setattr(blocks, "BLOCKS", {"twice": lambda word: f"{word} {word}"})
    monkeypatch.setattr(diffs, "EXPLAINED", [])
    page.write_text(start.format("twice a") + "old\n<!-- end -->\nafter\n")
    blocks.write()
    blocks.write()
    assert page.read_text() == start.format("twice a") + "a a\n<!-- end -->\nafter\n"
    told = "page.md: twice a was stale\n" + 2 * "1 generated parts are fresh\n"
    assert capsys.readouterr().out == told
    page.write_text(start.format("thrice") + "<!-- end -->\n")
    with pytest.raises(SystemExit, match=r"^page.md: .* makes no part 'thrice'$"):
        blocks.write()
