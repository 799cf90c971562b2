"""Promise: set-up says what is wrong before it downloads, and breaks nothing."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
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
    words = [f"{name}=x" for name in sorted(known - {"PYTHON", "VENV"})]
    result = call(["make", "-n", "help", *words], env={**ENV, "NPRC": "4"})
    assert result.returncode == 0, result.stderr
    listed = call(["make", "help-variables"]).stdout
    mentioned = set(re.findall(r"[A-Z_]+(?==)", listed + call(["make"]).stdout))
    assert mentioned == known - {"ANSWERS"}  # which make itself sets


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
    assert result.stderr.startswith("WHEELHOUSE=tools: it has no torch")


@pytest.fixture
def choice(monkeypatch, tmp_path):
    """Fake a machine: choice(driver, reason why the CPU index does not answer)."""
    monkeypatch.setattr(install, "CHOSEN", tmp_path / "torch-index")
    monkeypatch.setattr(install.sys, "platform", "linux")
    monkeypatch.delenv("TORCH_INDEX", raising=False)

    def fake(driver, reason):
        monkeypatch.setattr(preflight, "has_driver", lambda: driver)
        monkeypatch.setattr(preflight, "unreachable", lambda url: reason)
        return install.choose_index()

    return fake


def test_where_torch_comes_from(choice, monkeypatch, capsys):
    assert choice(True, None) == "default"
    assert capsys.readouterr().out == "NVIDIA driver found: torch with CUDA\n"
    assert choice(False, "timed out") == "default"
    assert "does not answer: torch with CUDA" in capsys.readouterr().out
    assert choice(False, None) == preflight.CPU
    assert "TORCH_INDEX=default takes the one with CUDA" in capsys.readouterr().out
    install.CHOSEN.write_text("https://chosen.before\n")
    assert choice(False, None) == "https://chosen.before"
    monkeypatch.setenv("TORCH_INDEX", "default")
    assert choice(False, None) == "default"


@pytest.fixture
def commands(monkeypatch, tmp_path):
    """Return the commands that would be run, each with the requirements it reads."""
    found = []

    def run(words, **options):
        read = "-r" in words and Path(words[-1]).read_text()
        found.append((" ".join(words), read))
        listed = "global.cert='here'\nglobal.index-url='https://mirror/simple'\n"
        return subprocess.CompletedProcess(words, 0, listed, "")

    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(install, "VENV", tmp_path)
    monkeypatch.setattr(install, "CHOSEN", tmp_path / "torch-index")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "uv").touch()
    for name in "TORCH_INDEX", "WHEELHOUSE", "UV_DEFAULT_INDEX", "PIP_INDEX_URL", "OUT":
        monkeypatch.delenv(name, raising=False)
    return found


def test_an_index_is_asked_for_torch_alone(commands, monkeypatch):
    monkeypatch.setenv("TORCH_INDEX", "https://index/cpu")
    install.setup("stages")
    _, (first, torch), (second, others) = commands  # pip is asked for its index first
    assert "--index-url https://index/cpu" in first
    assert "torchvision==" in torch and "numpy" not in torch
    assert "--index-url https://mirror/simple" in second
    assert "numpy==" in others
    assert "torch" not in others and "nvidia" not in others and "cuda" not in others
    assert install.CHOSEN.read_text() == "https://index/cpu\n"


def test_the_default_index_has_it_all(commands, monkeypatch):
    monkeypatch.setenv("TORCH_INDEX", "default")
    install.setup("notebooks")
    asked, (words, read) = commands
    assert asked[0].endswith("-m pip config list")
    assert "--index-url https://mirror/simple" in words
    everything = (ROOT / "requirements/notebooks.txt").read_text().splitlines()
    assert sorted(read.splitlines()) == sorted(everything)
    assert "jupyterlab==" in read and "nvidia-nccl" in read


def test_a_wheelhouse_holds_the_notebooks_and_uv(commands, monkeypatch, tmp_path):
    monkeypatch.setenv("TORCH_INDEX", "default")
    monkeypatch.setenv("OUT", str(tmp_path))
    install.wheelhouse()
    _, (words, read) = commands
    assert " download " in words and f" --no-deps --dest {tmp_path} " in words
    for package in "torch==", "nvidia-nccl", "jupyterlab==", "numpy==", install.UV:
        assert package in read


def test_what_failed_is_said(commands, monkeypatch):
    monkeypatch.setenv("TORCH_INDEX", "https://index/cpu")
    monkeypatch.setattr(install, "succeeds", lambda *words: False)
    with pytest.raises(SystemExit, match=r"could not get all of stages.txt: see above"):
        install.setup("stages")
    assert not install.CHOSEN.exists()


def test_pip_is_asked_for_its_index(monkeypatch, tmp_path):
    for name in "UV_DEFAULT_INDEX", "PIP_INDEX_URL":
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "pip.conf").write_text("[global]\nindex-url = https://mirror/simple\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    assert preflight.pip_index() == "https://mirror/simple"
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    assert preflight.pip_index() == preflight.PYPI
    monkeypatch.setenv("PIP_INDEX_URL", "https://other/simple")
    assert preflight.pip_index() == "https://other/simple"


SIGNS = "/dev/nvidiactl", "/proc/driver/nvidia", "/usr/lib/wsl/lib/libcuda.so.1"


@pytest.mark.parametrize("sign", [*SIGNS, "nvidia-smi", "libcuda", None])
def test_signs_of_a_driver(monkeypatch, sign):
    """Windows puts the driver of WSL into /usr/lib/wsl."""
    monkeypatch.setattr(os.path, "exists", lambda path: path == sign)
    tools = {"nvidia-smi": "/bin/nvidia-smi"} if sign == "nvidia-smi" else {}
    monkeypatch.setattr(shutil, "which", tools.get)
    library = "libcuda.so.1" if sign == "libcuda" else None
    monkeypatch.setattr(preflight.ctypes.util, "find_library", lambda name: library)
    assert preflight.has_driver() == (sign is not None)


def test_a_larger_size_holds_the_smaller(checkout):
    """After `make setup`, `make cpu` installs nothing."""
    for size in "notebooks", "dev":
        (checkout / f"requirements/{size}.txt").touch()
    python = checkout / "python"
    python.write_text('#!/bin/sh\n[ "$1" = -c ] || echo "$@" >> asked\n')
    python.chmod(0o755)
    (checkout / ".venv").mkdir()
    make = ["make", "PYTHON=./python"]
    for target in ".venv/notebooks.ready", ".venv/stages.ready", ".venv/dev.ready":
        result = subprocess.run([*make, target], cwd=checkout, env=ENV)
        assert result.returncode == 0
    asked = (checkout / "asked").read_text().splitlines()
    assert [words.split()[-1] for words in asked] == ["notebooks", "dev"]
    shown = call(["make", "-n", "setup", "-B"], cwd=checkout).stdout
    assert "tools.run.install notebooks" in shown


def test_what_is_wrong_is_said_before_a_download(monkeypatch, tmp_path):
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path))
    disk = SimpleNamespace(free=7e9)
    monkeypatch.setattr(preflight.shutil, "disk_usage", lambda folder: disk)
    assert preflight.find_problem(True, None) is None
    nowhere = "http://127.0.0.1:9/simple"
    line = preflight.find_problem(True, nowhere)
    assert line.startswith(f"no connection to {nowhere} (")
    disk.free = 3e9
    assert preflight.find_problem(False, None) is None
    line = preflight.find_problem(True, nowhere)
    assert line.endswith("has 3.0 GB free, and this needs 6.2")
    monkeypatch.setattr(preflight.importlib.util, "find_spec", lambda name: None)
    assert "apt install python3-venv" in preflight.find_problem(False, None)
    monkeypatch.setattr(preflight.platform, "system", lambda: "Darwin")
    monkeypatch.setattr(preflight.platform, "machine", lambda: "x86_64")
    assert preflight.find_problem(False, None).startswith("there is no torch for Intel")
