"""Promise: an exercise's page has what the path says, and the losses of data/sample."""

import re

import pytest

from conftest import ROOT
from tools.lab.exercise import PARTS, along_the_path, find_exercise
from tools.run import ranks
from tools.run.stages import EVERY, script

HALF = "(hidden).to(DEVICE)", "(hidden.to(SECOND)).to(DEVICE)"  # of 19's two mistakes
CURVES = [(n, 1) for n in ("01", "04", "06", "07", "08", "22", "26")] + [("19", 2)]


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


@pytest.mark.parametrize(("number", "quoted"), CURVES)
def test_a_curve_is_that_of_the_sample(number, quoted, tmp_path):
    exercise = find_exercise(number)
    pattern = r"losses\s+(?:are|become)\s+(\S+),\s+(\S+)\s+and\s+(\S+\d)"
    found = re.findall(pattern, exercise.text)
    texts = [script("01_cpu").read_text()]
    if number == "19":
        mended = exercise.script("start").replace(*HALF)
        texts = [mended, exercise.script("solution")]
    assert len(found) == len(texts) == quoted
    for told, text in zip(found, texts, strict=True):
        path = tmp_path / "mnist.py"
        path.write_text(text)
        result = ranks.run([path, "--out", tmp_path / "out"])
        losses = re.findall(r"loss ([\d.]+)", result.stdout)
        assert [f"{float(loss):.4f}" for loss in losses] == list(told), result.stderr


def test_exercise_15_makes_the_file_that_its_page_names(tmp_path):
    program = "exercises/as_on_gpus.py"
    assert f"python {program} " in find_exercise("15").text
    result = ranks.run([ROOT / program, tmp_path / "gpu.pth"])
    assert result.returncode == 0, result.stderr
    words = [script("05_ddp_inference"), "--checkpoint", tmp_path / "gpu.pth"]
    result = ranks.run(words, 2)
    assert re.search(r"test \d+/1000\n$", result.stdout), result.stderr
