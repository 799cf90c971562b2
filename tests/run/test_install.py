"""Promise: set-up says what is wrong before it downloads, and breaks nothing."""

import re
import shutil
import subprocess
import sys
import zipfile
from types import SimpleNamespace

import pytest

from conftest import ENV, ROOT, call
from tools.run import install, preflight

MAKEFILE = (ROOT / "Makefile").read_text()


@pytest.mark.parametrize(
    ("word", "line"),
    [
        ("NPRC=4", "there is no variable NPRC: did you mean NPROC?"),
        ("gpus=0", "there is no variable gpus: did you mean GPUS?"),
        ("COLOUR=a b", "there is no variable COLOUR: 'make help-variables' lists them"),
    ],
)
def test_a_variable_that_is_not_there_is_refused(word, line):
    result = call(["make", "cpu", word])
    assert result.returncode != 0
    assert result.stdout == ""
    assert line in result.stderr and result.stderr.count("\n") == 1
    result = call(["make", "cpu", word, "PYTHON=nowhere"])
    assert line.partition(":")[0] in result.stderr.splitlines()[-1]


def test_variables_that_are_there_and_those_of_the_shell_pass():
    known = set(re.findall(r"[A-Z_]+(?==)", MAKEFILE))
    assert len(known) > 30
    words = [f"{name}=x" for name in sorted(known - {"PYTHON"})]
    result = call(["make", "-n", "help", *words], env={**ENV, "NPRC": "4"})
    assert result.returncode == 0, result.stderr
    listed = call(["make", "help-variables"]).stdout
    mentioned = set(re.findall(r"[A-Z_]+(?==)", listed + call(["make"]).stdout))
    assert mentioned == known


def test_help_fits_one_screen():
    lines = call(["make"]).stdout.splitlines()
    assert 30 < len(lines) <= 40
    assert max(map(len, lines)) <= 100


@pytest.fixture
def checkout(tmp_path):
    """Return a copy of what makes .venv, with a wheelhouse of a tiny torch."""
    shutil.copytree(ROOT / "tools/run", tmp_path / "tools/run")
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "requirements").mkdir()
    pins = "torch==1.0\nnvidia-none==1.0 ; sys_platform != 'win32'\n"
    (tmp_path / "requirements/stages.txt").write_text(pins)
    (tmp_path / "house").mkdir()
    with zipfile.ZipFile(tmp_path / "house/torch-1.0-py3-none-any.whl", "w") as wheel:
        info = "torch-1.0.dist-info"
        wheel.writestr("torch.py", "tiny = True\n")
        wheel.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: torch\nVersion: 1.0\n"
        )
        wheel.writestr(
            f"{info}/WHEEL",
            "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        wheel.writestr(f"{info}/RECORD", "")
    return tmp_path


def make(checkout, *words, **variables):
    """Run make in a checkout with the packages of its wheelhouse."""
    words = ["make", ".venv/stages.ready", f"PYTHON={sys.executable}", *words]
    environment = {**ENV, "WHEELHOUSE": "house", **variables}
    return subprocess.run(
        words, cwd=checkout, env=environment, capture_output=True, text=True
    )


@pytest.mark.parametrize("there", [True, False])
def test_a_venv_that_cannot_be_made_takes_nothing_with_it(checkout, there):
    (checkout / "broken").mkdir()
    text = 'import os\nos.makedirs(".venv/half")\nraise SystemExit("no venv here")\n'
    (checkout / "broken/venv.py").write_text(text)
    if there:
        (checkout / ".venv").mkdir()
        (checkout / ".venv/mine").touch()
    result = make(checkout, PYTHONPATH="broken")
    assert result.returncode != 0
    assert "no venv here" in result.stderr
    assert "could not make .venv" in result.stderr
    assert (checkout / ".venv/mine").exists() == there
    assert (checkout / ".venv").exists() == there


def test_an_old_python_gets_its_line(checkout):
    (checkout / "python").write_text("#!/bin/sh\nexit 1\n")
    (checkout / "python").chmod(0o755)
    result = make(checkout, "PYTHON=./python")
    line = "./python is not Python 3.10 or newer: make PYTHON=python3.11, say"
    assert result.stderr.splitlines()[0] == line
    assert not (checkout / ".venv").exists()


def test_a_wheelhouse_is_enough(checkout):
    """A house without NVIDIA's packages is one for CPUs; no index is asked."""
    uv = ROOT / ".venv/bin/uv"
    if not uv.exists():
        pytest.skip("no uv in .venv: it was not made by make")
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", checkout / ".venv"], check=True
    )
    (checkout / ".venv/bin/uv").symlink_to(uv)
    nowhere = {"UV_DEFAULT_INDEX": "http://127.0.0.1:9/simple"}
    result = make(checkout, **nowhere)
    assert result.returncode == 0, result.stderr
    python = checkout / ".venv/bin/python"
    assert call([python, "-c", "import torch; print(torch.tiny)"]).stdout == "True\n"
    (checkout / ".venv/stages.ready").unlink()
    result = make(checkout, **nowhere, WHEELHOUSE="tools")
    assert result.stderr.startswith("WHEELHOUSE=tools: no torch in there")


@pytest.fixture
def choice(monkeypatch, tmp_path):
    """Pretend a machine: choice(driver, reason why the CPU index does not answer)."""
    monkeypatch.setattr(install, "CHOSEN", tmp_path / "torch-index")
    monkeypatch.setattr(install.sys, "platform", "linux")
    monkeypatch.delenv("TORCH_INDEX", raising=False)

    def pretend(driver, reason):
        monkeypatch.setattr(preflight, "has_driver", lambda: driver)
        monkeypatch.setattr(preflight, "unreachable", lambda url: reason)
        return install.choose_index()

    return pretend


def test_where_torch_comes_from(choice, monkeypatch, capsys):
    assert choice(True, None) == ("default", True)
    assert capsys.readouterr().out == "NVIDIA driver found: torch with CUDA\n"
    assert choice(False, "timed out") == ("default", True)
    assert "does not answer: torch with CUDA" in capsys.readouterr().out
    assert choice(False, None) == (preflight.CPU, True)
    assert "TORCH_INDEX=default takes the one with CUDA" in capsys.readouterr().out
    install.CHOSEN.write_text("https://chosen.before\n")
    assert choice(False, None) == ("https://chosen.before", False)
    monkeypatch.setenv("TORCH_INDEX", "default")
    assert choice(False, None) == ("default", False)


def test_an_index_without_these_versions_is_not_the_end(choice, monkeypatch, tmp_path):
    choice(False, None)
    monkeypatch.setattr(install, "VENV", tmp_path)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/uv").touch()
    asked = []

    def fails_for_cpus(size, index, house):
        asked.append(index)
        return index == "default"

    monkeypatch.setattr(install, "install", fails_for_cpus)
    install.setup("stages")
    assert asked == [preflight.CPU, "default"]
    assert install.CHOSEN.read_text() == "default\n"
    asked.clear()
    monkeypatch.setenv("TORCH_INDEX", preflight.CPU)
    with pytest.raises(SystemExit, match="could not install stages.txt"):
        install.setup("stages")  # what somebody asked for is not replaced
    assert asked == [preflight.CPU]


def test_what_is_wrong_is_said_before_a_download(monkeypatch, tmp_path):
    for name in preflight.PROXIES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path))
    disk = SimpleNamespace(free=7e9)
    monkeypatch.setattr(preflight.shutil, "disk_usage", lambda folder: disk)
    assert preflight.look(True, None) == []
    nowhere = "http://127.0.0.1:9/simple"
    (line,) = preflight.look(True, nowhere)
    assert line.startswith(f"no connection to {nowhere} (")
    assert "no proxy is set" in line
    monkeypatch.setenv("HTTPS_PROXY", "http://me:secret@127.0.0.1:9")
    (line,) = preflight.look(True, nowhere)
    assert "through the HTTPS_PROXY that is set" in line and "secret" not in line
    disk.free = 3e9
    assert preflight.look(False, None) == []
    lines = preflight.look(True, nowhere)
    assert lines and all(
        "has 3.0 GB free, and this needs 6.2" in line for line in lines
    )
    monkeypatch.setattr(preflight.importlib.util, "find_spec", lambda name: None)
    assert "apt install python3-venv" in preflight.look(False, None)[0]
    monkeypatch.setattr(preflight.platform, "system", lambda: "Darwin")
    monkeypatch.setattr(preflight.platform, "machine", lambda: "x86_64")
    assert preflight.look(False, None)[0].startswith("there is no torch for Intel Macs")
