"""Promise: `make compat` says whether another PyTorch gives the curve of the pinned one."""

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


@pytest.mark.parametrize("different", [None, "04_ddp"])
def test_the_curves_are_compared(different, monkeypatch, tmp_path, capsys):
    trained = []

    def train(python, target, out):
        trained.append((python, target))
        folders = [out / stage for stage in STAGES] if target == "all" else [out]
        for folder in folders:
            folder.mkdir(parents=True)
            curve = WRONG if folder.name == different else CURVE
            lines = ["epoch,loss,correct,total,seconds"]
            for epoch, row in enumerate(curve, start=1):
                lines.append(",".join(map(str, [epoch, *row, 0.5])))
            (folder / "metrics.csv").write_text("\n".join(lines) + "\n")

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
        last = capsys.readouterr().out.splitlines()[-1]
        assert last == f"PyTorch 2.6.0 gives the curve of {ours}"
    assert [target for _, target in trained] == ["cpu", "all"]
    assert trained[1][0] == Path("old")
