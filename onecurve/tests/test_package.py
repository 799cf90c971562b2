"""Promise: onecurve is a separate package that needs only PyTorch and psutil."""

import os
import re
import shutil
import sys

import pytest
from conftest import PROJECT, call


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Return a folder with nothing but the installed wheel."""
    folder = tmp_path_factory.mktemp("package")
    leave = shutil.ignore_patterns("__pycache__", "tests", "eval")
    source = shutil.copytree(PROJECT, folder / "onecurve", ignore=leave)
    target = folder / "installed"
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps"]
    result = call([*pip, "--no-build-isolation", "--target", target, source])
    assert result.returncode == 0, result.stderr
    return target


def test_it_needs_pytorch_and_psutil_alone(installed):
    (metadata,) = installed.glob("onecurve-*.dist-info/METADATA")
    lines = metadata.read_text().splitlines()
    needed = [line for line in lines if line.startswith("Requires-Dist")]
    assert needed == ["Requires-Dist: psutil", "Requires-Dist: torch>=2.6"]
    assert (installed / "bin/onecurve").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--help"], "usage: onecurve [-h] [--ranks RANKS]"),
        (["no.py"], "no such script: no.py"),
        (["notes.txt"], "notes.txt is not a Python script: "),
        (["--ranks", "1", "no.py"], "--ranks 1: expected 2 or more"),
    ],
)
def test_what_needs_no_run_is_answered_without_any_package(installed, words, said):
    # -S: no installed package can be imported, not even PyTorch
    env = {**os.environ, "PYTHONPATH": str(installed)}
    python = [sys.executable, "-S", "-m", "onecurve"]
    (installed / "bin/notes.txt").write_text("not a script")
    result = call([*python, *words], cwd=installed / "bin", env=env)
    assert (result.stdout + result.stderr).startswith(said)


def test_the_package_says_what_each_package_is_for():
    package = PROJECT / "src/onecurve"
    packages = {path.parent.name for path in package.glob("*/__init__.py")}
    text = (package / "__init__.py").read_text()
    assert set(re.findall(r"(?m)^(\w+)  ", text)) == packages | {"inspection"}
