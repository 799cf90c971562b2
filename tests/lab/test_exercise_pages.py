"""Promise: an exercise's page has what the path says, and the losses of data/sample."""

import re

from conftest import ROOT
from onecurve import ranks
from tools.lab.exercise import PARTS, along_the_path, find_exercise
from tools.run.stages import CPU_PROCESSES, EVERY, script

HALF = "(hidden).to(DEVICE)", "(hidden.to(SECOND)).to(DEVICE)"  # of 19's two mistakes
QUOTED = re.compile(r"losses\s+(?:are|become)\s+(\S+),\s+(\S+)\s+and\s+(\S+\d)")
OTHERS = "28", "30", "27", "25"  # exercises whose losses are not those of stage 1


def test_each_page_is_on_the_path_once_after_those_it_builds_on():
    pages = sorted(path.stem for path in (ROOT / "exercises").glob("[0-9]*.md"))
    path = along_the_path()
    assert sorted(one.name for one in path) == pages
    before = set()
    for one in path:
        head = f"# {one.title}\n\nStage {one.stage}, {one.minutes} minutes.\n"
        assert one.text.startswith(head)
        assert one.stage in EVERY.values()
        assert before.issuperset(one.after), one.number
        before.add(one.number)
    parts = [one.part for one in path]
    assert parts == sorted(parts)
    assert set(parts) == set(PARTS)


def losses(text, stage, folder):
    """Return the losses that a script prints, as a page quotes them."""
    path = folder / "mnist.py"
    path.write_text(text)
    words = [path, "--out", folder / "out"]
    result = ranks.run(words, CPU_PROCESSES.get(stage, 0))
    found = re.findall(r"loss ([\d.]+)", result.stdout)
    return tuple(f"{float(loss):.4f}" for loss in found)


def test_a_page_quotes_the_losses_of_a_right_script(tmp_path):
    stage_1 = losses(script("01_cpu").read_text(), "01_cpu", tmp_path)
    quoted = {}
    for exercise in along_the_path():
        for told in QUOTED.findall(exercise.text):
            if told != stage_1:
                quoted.setdefault(exercise.number, []).append(told)
    mended = find_exercise("28").script("start").replace(*HALF)
    expected = {"28": [losses(mended, "06_model_parallel", tmp_path)]}
    for number in OTHERS:
        right = find_exercise(number)
        told = losses(right.script("solution"), right.stage, tmp_path)
        expected.setdefault(number, []).append(told)
    assert quoted == expected
