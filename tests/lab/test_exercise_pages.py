"""Promise: the losses that exercises' pages quote are those of data/sample."""

import re

import pytest

from conftest import ROOT
from tools.lab.exercise import find_exercise
from tools.run import ranks
from tools.run.stages import script

HALF = "(hidden).to(DEVICE)", "(hidden.to(SECOND)).to(DEVICE)"  # of 19's two mistakes
CURVES = [(n, 1) for n in ("01", "04", "06", "07", "08", "22", "26")] + [("19", 2)]


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
        out = tmp_path / "out"
        path.write_text(text)
        result = ranks.run([path, "--data", ROOT / "data/sample", "--out", out])
        losses = re.findall(r"loss ([\d.]+)", result.stdout)
        assert [f"{float(loss):.4f}" for loss in losses] == list(told), result.stderr


def test_exercise_15_makes_the_file_that_its_page_names(tmp_path):
    program = "exercises/as_on_gpus.py"
    assert f"python {program} " in find_exercise("15").text
    result = ranks.run([ROOT / program, tmp_path / "gpu.pth"])
    assert result.returncode == 0, result.stderr
    words = "--data", ROOT / "data/sample", "--checkpoint", tmp_path / "gpu.pth"
    result = ranks.run([script("05_ddp_inference"), *words], 2)
    assert re.search(r"test \d+/1000\n$", result.stdout), result.stderr
