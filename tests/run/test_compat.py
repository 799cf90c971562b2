"""Promise: `make compat` says whether another PyTorch gives the pinned one's curve."""

import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest

from conftest import call
from tools.run import compat
from tools.run.stages import STAGES

CURVE = [(1.5, 760, 1000), (0.6, 850, 1000), (0.4, 880, 1000)]
WRONG = [(1.2, 790, 1000), (0.5, 860, 1000), (0.3, 890, 1000)]


@pytest.mark.parametrize(
    ("torch", "line"),
    [
        ("", "TORCH='' must be a version of PyTorch, such as TORCH=2.6.0"),
        ("2.6", "TORCH='2.6' must be a version of PyTorch, such as TORCH=2.6.0"),
        ("../x", "TORCH='../x' must be a version of PyTorch, such as TORCH=2.6.0"),
        ("2.3.1", "01_cpu, 02_single_gpu, 03_dp, 04_ddp, 05_ddp_inference, 06_mo"),
    ],
)
def test_refusals(torch, line):
    result = call(["make", "compat", f"TORCH={torch}"])
    assert result.returncode != 0
    assert result.stderr.startswith(line)


def write_curve(path, curve):
    lines = ["epoch,loss,correct,total,seconds"]
    for epoch, row in enumerate(curve, start=1):
        lines.append(",".join(map(str, [epoch, *row, 0.5])))
    path.write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("different", [None, "04_ddp"])
def test_the_curves_are_compared(different, monkeypatch, tmp_path, capsys):
    trained = []

    def train(python, stage, out):
        trained.append((python, stage))
        out.mkdir(parents=True)
        write_curve(out / "metrics.csv", WRONG if stage == different else CURVE)
        return stage != "05_ddp_inference"

    monkeypatch.setattr(compat, "make_environment", lambda wanted: Path("old"))
    monkeypatch.setattr(compat, "train", train)
    monkeypatch.setattr(compat, "RUNS", tmp_path)
    monkeypatch.setattr("sys.argv", ["compat", "2.6.0"])
    if different:
        with pytest.raises(SystemExit, match="^PyTorch 2.6.0 gives another curve: 04_"):
            compat.main()
    else:
        compat.main()
        ours = version("torch").partition("+")[0]
        hung, last = capsys.readouterr().out.splitlines()[-2:]
        assert hung.startswith("05_ddp_inference: saved all, then did not end: ")
        assert last == f"PyTorch 2.6.0 gives the curve of {ours}"
    assert [stage for _, stage in trained] == ["01_cpu", *STAGES]
    assert {python for python, _ in trained[1:]} == {Path("old")}


@pytest.mark.parametrize("epochs", [3, 2])
def test_a_run_that_hangs_after_its_last_epoch_counts(epochs, monkeypatch, tmp_path):
    def hang(words, timeout, **options):
        write_curve(tmp_path / "metrics.csv", CURVE[:epochs])
        raise subprocess.TimeoutExpired(words, timeout)

    monkeypatch.setattr(compat.subprocess, "run", hang)
    if epochs == compat.EPOCHS:
        assert not compat.train("python", "04_ddp", tmp_path)
    else:
        with pytest.raises(SystemExit, match="^04_ddp failed with python"):
            compat.train("python", "04_ddp", tmp_path)
