"""Promise: no diff, table or output in the pages is typed by hand, none is stale."""

import re
import shutil
from itertools import pairwise

import pytest

from conftest import ROOT
from parts import part
from tools.lab.exercise import patched
from tools.pages import blocks, reasons, variants
from tools.run import diffs, ideas
from tools.run.stages import EVERY, OWN, STAGES, TRANSFORMER, script

PAIRS = [*diffs.EXPLAINED, *pairwise(OWN)]  # the diffs that pages explain


def parts():
    """Return every generated part: {(page, name): its text}."""
    found = {}
    for page in blocks.PAGES:
        for name, text in blocks.PART.findall((ROOT / page).read_text()):
            assert (page, name) not in found
            found[page, name] = text.strip()
    return found


def texts(kind):
    """Return the parts of a kind: {name: text}."""
    return {
        name: text for (_, name), text in parts().items() if name.split()[0] == kind
    }


def assert_same(old, new, name):
    assert blocks.same(old, new), f"{name} is stale, run: make docs"


# What a run prints.
RUN = {"held", "printed", "verdict", "program", "variants", "inspected"}
RUN |= {"own_curves", "resumed", "widths"}


def sources(case):
    """Return what a generated part comes from: the scripts, and who runs them."""
    kind, *words = case.split()
    found = [ROOT / "tools/pages/variants.py", ROOT / "data/sample"]
    if kind == "printed":
        found += [script(words[0])]
    elif kind == "held":
        found += [ROOT / "tools/bench/held.py"]
        for name in words or TRANSFORMER.values():
            is_stage = name in TRANSFORMER.values()
            found += [script(name)] if is_stage else sources(f"variants {name}")
    elif kind == "verdict":
        found += [script(stage) for stage in STAGES]
        found += [ROOT / "tools/run/compare.py"]
    elif kind in ("resumed", "widths"):
        stages = words or ["01_cpu", "12_sharded_checkpoint"]
        found += [script(stage) for stage in stages]
        found += [ROOT / "tools/pages/resumed.py", ROOT / "tools/pages/outcomes.json"]
    elif kind == "own_curves":
        found += [script(name) for name in OWN]
    elif kind == "program":
        found += [ROOT / words[0], ROOT / "tools/lab/fake_cuda"]
    elif kind == "inspected":
        found += [script("after_ddp"), variants.MISTAKES]
        found += [ROOT / "onecurve/src"]
    for word in words if kind == "variants" else []:
        name = word.partition("=")[0]
        patch = variants.VARIANTS / f"{name}.patch"
        found += [patch, script(variants.variant_stage(name))]
    return found


def test_generated_parts_that_need_no_run_are_fresh():
    kinds = set()
    for (page, name), text in parts().items():
        kind = name.split()[0]
        kinds.add(kind)
        if kind not in RUN:
            assert_same(text, blocks.make(name), f"{page}: {name}")
    assert kinds == blocks.BLOCKS.keys()
    assert texts("printed").keys() == {f"printed {stage}" for stage in EVERY.values()}


def of_runs():
    """Return the names of the generated parts that show what a run prints."""
    names = [name for _, name in parts() if name.split()[0] in RUN]
    return list(dict.fromkeys(names))  # two pages may show the same


@pytest.mark.parametrize("name", part("outputs", of_runs(), 10, sources))
def test_the_output_of_a_run_is_fresh(name):
    if name.endswith("compile") and not shutil.which("c++"):
        pytest.skip("torch.compile needs a C++ compiler: Debian's package g++")
    made = blocks.make(name)
    shown = [text for (_, one), text in parts().items() if one == name]
    assert len(shown) >= 1
    for text in shown:
        assert_same(text, made, name)


def test_every_variant_is_shown_with_its_diff_and_its_curve():
    diffs_shown = texts("variant")
    curves = "\n".join(texts("variants").values())
    names = [path.stem for path in variants.VARIANTS.glob("*.patch")]
    assert len(names) > 5
    for name in names:
        stage = variants.variant_stage(name)
        original = script(stage).read_text()
        assert patched(original, variants.VARIANTS / f"{name}.patch", stage) != original
        assert f"variant {name}" in diffs_shown
        assert len(re.findall(rf"(?m)^{name} +\d\.\d{{6}}", curves)) == 1


@pytest.mark.parametrize("pair", PAIRS, ids="->".join)
def test_every_hunk_has_its_reason(pair):
    found = reasons.reasons(*pair)
    assert len(found) == len(diffs.hunks(*pair)) > 0
    for idea in found:
        text = idea.text
        assert len(text.split()) >= 5, f"no reason: {idea.title}"
        assert "](../" not in text and "[^" not in text  # it is shown elsewhere too
        assert "<" not in re.sub("(?s)`.*?`", "", text)  # and not in a fold


def test_a_hunk_that_no_page_explains_is_an_error(tmp_path, monkeypatch):
    text = (ROOT / "03_dp" / "README.md").read_text()
    monkeypatch.setattr(ideas, "folder", lambda stage: tmp_path)
    for wrong in "", "1 2", "3":  # none; hunk 2 told twice; there is no hunk 3
        page = text.replace("03_dp 1 |", f"03_dp {wrong} |")
        (tmp_path / "README.md").write_text(page)
        with pytest.raises(SystemExit, match="put each hunk N once"):
            reasons.reasons("02_single_gpu", "03_dp")


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
