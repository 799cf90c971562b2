"""Promise: setup reports problems before it downloads, and breaks nothing."""

import os
import re
import shutil
import sys
from pkgutil import resolve_name

import pytest

from conftest import ENV, ROOT, call
from tools import __main__ as commands
from tools import asked
from tools.run import install
from tools.run.stages import EVERY


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["cpu", "NPRC=a b"], "unknown variable NPRC. Did you mean NPROC? List them"),
        (["04_ddp"], "unknown target 04_ddp. Did you mean make ddp? List them: make h"),
        (["tests"], "unknown target tests. List them: make help"),
        (["check", "06"], "unknown target 06. Did you mean E=06? List them: make help"),
        (["ddpp"], "unknown target ddpp. List them: make help"),
        (["cpu", "PYTHON=no"], "no is not Python 3.10 or newer: make PYTHON="),
        (["ddp", "GPU=0"], "unknown variable GPU. Did you mean GPUS? List them: make"),
    ],
)
def test_a_word_that_make_does_not_know_is_refused(words, line):
    result = call(["make", *words])
    assert result.returncode != 0
    assert result.stdout == ""
    assert line in result.stderr
    assert result.stderr.count("\n") == 2  # the second line is make's


@pytest.mark.parametrize("word", ["GPU=0", "04_ddp"])
def test_a_bare_clone_refuses_before_it_installs(word, tmp_path):
    shutil.copytree(ROOT / "tools", tmp_path / "tools")
    shutil.copy(ROOT / "Makefile", tmp_path)
    result = call(["make", "ddp", word], cwd=tmp_path)
    assert result.returncode == 2
    assert result.stderr.startswith("unknown ")
    assert not (tmp_path / ".venv").exists()


def test_each_command_is_a_function_and_each_target_has_one():
    for name in asked.targets():
        function, *_ = commands.COMMANDS.get(name, "tools.run.launch:main").split()
        assert callable(resolve_name(function)), name
    stages = {"all", "beyond", "transformer", *EVERY}
    assert {*commands.COMMANDS, *stages, *asked.HELP} == set(asked.targets())
    for row in commands.COMMANDS.values():
        assert set(row.split()[1:]) <= set(asked.variables()), row


def test_the_makefile_has_every_target():
    """`make ddp` runs `python -m tools ddp`; no recipe has more than two lines."""
    for name in asked.targets():
        result = call(["make", "-n", name, "PY=python"])
        assert result.returncode == 0, result.stderr
        if name not in asked.HELP:
            assert f"\npython -m tools {name}\n" in f"\n{result.stdout}"
    recipes = re.findall(r"(?m)(?:^\t.*\n)+", (ROOT / "Makefile").read_text())
    assert len(recipes) > 5
    assert all(recipe.count("\n\t") < 3 for recipe in recipes)


def test_help_says_where_to_begin_and_has_every_target_and_variable():
    result = call(["make"], env={**ENV, "NPRC": "4"})  # from the shell
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[1].startswith("Begin with 'make all' ")
    assert 30 < len(lines) <= 48
    listed = r"^  make ([a-z_]+(?:, [a-z0-9_]+)*)  "
    shown = re.findall(listed, result.stdout, re.MULTILINE)
    assert {*", ".join(shown).split(", "), *asked.HELP} == set(asked.targets())
    listed = call(["make", "help-variables"]).stdout
    for name in asked.variables():
        assert f"{name}=" in listed
    assert max(map(len, (result.stdout + listed).splitlines())) <= 80


def test_what_make_is_given_reaches_a_command_as_it_was_typed(tmp_path):
    """Neither a shell nor make expands it; Python's path may contain a space."""
    odd = 'O"Brien $HOME `touch evil` $(touch evil)$(shell touch evil) \\ x'
    checkout = tmp_path / "a checkout"
    shutil.copytree(ROOT / "tools", checkout / "tools")
    shutil.copy(ROOT / "Makefile", checkout)
    prints = "import sys; sys.path.insert(0, '.'); import os; from tools import asked\n"
    prints += "asked.set_environment(); print(os.environ['OUT'], os.environ['ARGS'])"
    python = tmp_path / "my python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{prints}"\n')
    python.chmod(0o755)
    words = ["make", "ddp", f"OUT={odd}", "ARGS=--lr 0.05", f'PY="{python}"']
    result = call(words, cwd=checkout, env={**ENV, "OUT": "x", "EPOCHS": "x"})
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == f"{odd} --lr 0.05\n"
    assert list(tmp_path.rglob("evil")) == []


def test_without_venv_a_missing_package_is_a_line_with_the_command(tmp_path):
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    result = call(["make", f"PY={python}", "cpu"])
    assert result.returncode == 2
    line, _ = result.stderr.splitlines()  # the second line is make's
    assert " lacks packages. Install them: " in line
    assert " -m pip install torch torchvision " in line
    assert line.endswith(" ./onecurve")


def test_make_f_from_elsewhere_says_what_to_do(tmp_path):
    result = call(["make", "-f", ROOT / "Makefile", "cpu", "OUT=x"], cwd=tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    assert "run make in this Makefile's folder: make -C FOLDER, not" in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.fixture
def checkout(tmp_path):
    """Return a copy of the files that build .venv."""
    shutil.copytree(ROOT / "tools", tmp_path / "tools")
    for name in "Makefile", "pyproject.toml":
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


KILLS = """
import os, signal, sys
os.makedirs(".venv/bin")
os.symlink(sys._base_executable, ".venv/bin/python")
os.kill(os.getppid(), signal.SIGKILL)
"""
FAILS = 'raise SystemExit("no venv here")'


@pytest.mark.slow
@pytest.mark.parametrize("text", [KILLS, FAILS])
def test_a_venv_that_is_half_made_is_made_again(checkout, text):
    """Without an index, nothing is installed, and nothing counts as installed."""

    def make(path):
        indexes = {"PIP_INDEX_URL": "file:///no", "PIP_FIND_LINKS": ""}
        words = [f"PYTHON={sys.executable}", "TORCH_INDEX=default", ".venv/learn.ready"]
        env = {**ENV, **indexes, "PYTHONPATH": path}
        result = call(["make", *words], cwd=checkout, env=env)
        assert result.returncode != 0
        assert not (checkout / ".venv/learn.ready").exists()
        return result.stderr

    (checkout / "broken").mkdir()
    (checkout / "broken/venv.py").write_text(text)
    refused = make("broken")
    said = "no venv here\n" in refused and "not create .venv" in refused
    assert said == (text == FAILS)
    assert "could not install all of learn.txt: see above. TORCH_INDEX=" in make("")
    assert (checkout / ".venv/bin/pip").exists()


@pytest.mark.parametrize(
    ("given", "driver", "answers", "system", "index"),
    [
        ("", False, True, "linux", install.FOR_CPUS),
        ("", True, True, "linux", None),
        ("", False, False, "linux", None),
        ("", False, True, "darwin", None),  # macOS builds have no CUDA
        ("default", False, True, "linux", None),
        ("https://x/cpu", True, False, "linux", "https://x/cpu"),
    ],
)
def test_where_torch_comes_from(
    given, driver, answers, system, index, monkeypatch, tmp_path
):
    """From TORCH_INDEX, or depending on the driver if PyTorch's index answers."""
    (tmp_path / "nvidia-smi").touch(0o755 if driver else 0o644)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("TORCH_INDEX", given)
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(install, "answers", lambda url: answers)
    assert install.index_of_torch() == (["--index-url", index] if index else [])


def test_a_larger_list_holds_the_smaller(checkout):
    """After `make test`, `make cpu` installs nothing."""
    (checkout / ".venv").mkdir()
    python = checkout / "python"
    text = f'case "$*" in *tools.asked*|-c*) exec {sys.executable} "$@";; esac'
    python.write_text(f'#!/bin/sh\n{text}\necho "$@" >> asked\n')
    python.chmod(0o755)
    for target in ".venv/dev.ready", ".venv/learn.ready":
        assert call(["make", "PYTHON=./python", target], cwd=checkout).returncode == 0
    os.utime(checkout / "tools/requirements/learn.txt", (4e9, 4e9))  # it has changed
    call(["make", "PYTHON=./python", ".venv/learn.ready"], cwd=checkout)
    asked = (checkout / "asked").read_text().splitlines()
    assert [words.split()[-1] for words in asked] == ["dev", "learn"]
