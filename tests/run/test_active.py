"""Promise: VENV=none takes the active Python, says what it lacks, installs nothing."""

import sys

import pytest
from mutants import copy

from conftest import ENV, call
from tools.run.active import needed
from tools.run.sample import cut

NAMES = needed("stages")
REST = [*NAMES[2:], "onecurve"]  # but for torch and torchvision


@pytest.mark.parametrize(
    ("names", "torch", "line"),
    [
        ([], "", f"lacks {' '.join(NAMES)} ./onecurve: activate another, or "),
        (["torch", *REST], "2.15.0", "python -m pip install torchvision, or l"),
        (["torch", "torchvision", *REST], "2.3.1+cu121", "2.3.1+cu121 is too old for"),
        (None, "", "python is not Python 3.10 or newer: activate another, or "),
    ],
)
def test_a_python_that_will_not_do_is_refused(names, torch, line, tmp_path):
    """It has the names and versions of packages, and nothing to import."""
    for name in names or []:
        folder = tmp_path / f"{name.replace('-', '_')}-1.dist-info"
        folder.mkdir()
        version = torch if name == "torch" else "1.0"
        (folder / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
    python = tmp_path / "python"
    start = f"PYTHONPATH={tmp_path} exec {sys.executable} -S"
    does = "echo no >&2; exit 1" if names is None else f'{start} "$@"'
    python.write_text(f"#!/bin/sh\n{does}\n")
    python.chmod(0o755)
    result = call(["make", "cpu", "VENV=none", f"PYTHON={python}"])
    assert result.returncode != 0
    assert result.stdout == ""
    assert line in result.stderr.splitlines()[0]


def test_it_runs_and_makes_no_venv(tmp_path):
    """The active Python is the one that PATH finds."""
    clone = copy(tmp_path / "clone")
    (clone / ".venv").unlink()
    (tmp_path / "python3").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (tmp_path / "python3").chmod(0o755)
    data = cut(tmp_path / "data", 64, 10)
    words = ["make", "cpu", "VENV=none", "EPOCHS=1", "GPUS=cpu", f"DATA={data}"]
    environment = {**ENV, "PATH": f"{tmp_path}:{ENV['PATH']}"}
    result = call(words, cwd=clone, env=environment, timeout=300)
    assert result.returncode == 0, result.stderr
    assert "epoch 1/1  loss " in result.stdout
    assert not (clone / ".venv").exists()
