"""Promise: VENV=none takes the active Python, says what it lacks, installs nothing."""

import re
import shutil
import sys

import pytest

from conftest import ENV, ROOT, call
from tools.run import plan
from tools.run.active import needed

NAMES = needed("stages")


@pytest.fixture
def fake(tmp_path):
    """Return a function: fake(torch="2.3.1") is a Python with all, and that PyTorch.

    fake("torch", "tqdm") has these packages only. It has their names and versions.
    """

    def make(*names, torch="2.15.0"):
        for name in names or NAMES:
            folder = tmp_path / f"{name.replace('-', '_')}-1.dist-info"
            folder.mkdir()
            version = torch if name == "torch" else "1.0"
            (folder / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
        python = tmp_path / "python"
        lines = "#!/bin/sh", f'PYTHONPATH={tmp_path} exec {sys.executable} -S "$@"'
        python.write_text("\n".join(lines) + "\n")
        python.chmod(0o755)
        return python

    return make


def refused(target, python):
    """Return what make says on stderr when it refuses a Python, its own line aside."""
    result = call(["make", target, "VENV=none", f"PYTHON={python}"])
    assert result.returncode != 0
    assert result.stdout == ""
    line, *rest = result.stderr.splitlines()
    assert all(re.match(r"make(\[\d\])?: \*\*\*", text) for text in rest)
    return line


def test_what_is_needed():
    assert {"torch", "torchvision", "tqdm", "psutil"} <= set(NAMES)
    assert len(NAMES) >= 8
    assert {"torch", "jupyterlab", "nbformat"} <= set(needed("notebooks"))
    assert {"torch", "jupyterlab", "pytest", "ruff"} <= set(needed("dev"))
    assert "notebooks" not in needed("dev")


def test_a_python_that_lacks_something(fake):
    assert "has no PyTorch: activate the one that has it" in refused(
        "cpu", fake("tqdm")
    )


def test_missing_packages_are_named(fake):
    names = [name for name in NAMES if name not in ("tqdm", "psutil")]
    line = refused("cpu", fake(*names))
    assert line.count(" psutil tqdm") == 2
    assert "-m pip install psutil tqdm" in line


@pytest.mark.parametrize(
    ("target", "torch", "line"),
    [
        ("exercises", "2.3.1+cu121", "01_cpu, 02_single_gpu, 03_dp, 04_ddp, 05_ddp"),
        ("wheelhouse", "2.15.0", "make wheelhouse needs .venv: leave VENV=none out"),
    ],
)
def test_too_old_for_what_is_asked(target, torch, line, fake):
    assert refused(target, fake(torch=torch)).startswith(line)


def test_an_old_python(tmp_path):
    (tmp_path / "python").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "python").chmod(0o755)
    assert "is not Python 3.10 or newer: " in refused("cpu", tmp_path / "python")


def test_another_word():
    result = call(["make", "cpu", "VENV=conda"])
    assert result.returncode != 0
    assert "VENV=conda: take VENV=none, which uses the active Python" in result.stderr


def test_it_runs_and_makes_no_venv(tmp_path):
    """The active Python is the one that PATH finds."""
    names = ["Makefile", "pyproject.toml", "tools", "03_dp", "04_ddp", "data/sample"]
    for name in names:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / name)
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python3"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    words = ["make", "ddp", "VENV=none", "EPOCHS=1", "DATA=data/sample", "GPUS=cpu"]
    environment = {**ENV, "PATH": f"{tmp_path / 'bin'}:{ENV['PATH']}"}
    result = call(words, cwd=tmp_path, env=environment, timeout=300)
    assert result.returncode == 0, result.stderr
    assert "epoch 1/1  loss 1.499912" in result.stdout
    assert not (tmp_path / ".venv").exists()


def test_torchrun_need_not_lie_beside_the_python(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python3"))
    words = [str(tmp_path / "python3"), "-m", "torch.distributed.run"]
    assert plan.torchrun() == words
    (tmp_path / "torchrun").touch()
    assert plan.torchrun() == [str(tmp_path / "torchrun")]
