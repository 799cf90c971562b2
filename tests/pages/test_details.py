"""Promise: stage 4 with a diff of 04_ddp/DETAILS.md prints what the page shows."""

import re

import pytest

from conftest import ROOT, call, command, run
from tools.pages.hangs import patched
from tools.run.stages import script

PAGE = (ROOT / "04_ddp" / "DETAILS.md").read_text()
DATA = "--data", "data/sample"


def written(heading, tmp_path):
    """Write stage 4 with the diff below a heading; return its path and that section."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    (diff,) = re.findall(r"(?s)```diff\n(.*?)```", section)
    path = tmp_path / "04_ddp" / "mnist.py"
    path.parent.mkdir()
    path.write_text(patched(script("04_ddp").read_text(), diff))
    return path, section


@pytest.mark.parametrize(
    "heading", ["A sampler of your own", "Workers and pinned memory"]
)
def test_a_diff_gives_the_curve_that_is_shown(heading, tmp_path):
    path, section = written(heading, tmp_path)
    result = run("04_ddp", *DATA, "--out", tmp_path, path=path)
    epochs = r"epoch \d/3  loss \d+\.\d{4}"
    shown = re.findall(epochs, section)
    assert len(shown) == 3
    assert re.findall(epochs, result.stdout) == shown, result.stderr


def test_the_lines_for_tensorboard_fit(tmp_path):
    path, _ = written("Log from one rank", tmp_path)
    compile(path.read_text(), path, "exec")  # TensorBoard is not installed here


def test_the_debugger_stops_one_rank(tmp_path):
    path, section = written("Stop one rank in the debugger", tmp_path)
    words = command("04_ddp", *DATA, "--epochs=1", "--out", tmp_path, path=path)
    typed = re.findall(r"\(Pdb\) (.+)", section)
    result = call(words, input="\n".join([*typed, ""]))
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("(Pdb)") == len(typed) == 4
    for line in re.findall(r"^(?:tensor|\d|->|Type).*", section, re.MULTILINE):
        assert line in result.stdout
    assert "epoch 1/1  loss 1.4999" in result.stdout
