"""Promise: set-up says what is wrong before it downloads, and breaks nothing."""

import os
import re
import shutil
import sys
import zipfile

import pytest

from conftest import ENV, ROOT, call
from tools.run import install
from tools.run.stages import EVERY


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["cpu", "NPRC=a b"], "there is no variable NPRC: 'make help-variables' lists"),
        (["04_ddp"], "there is no target 04_ddp: 'make help' lists them."),
        (["check", "06"], "there is no target 06: is it E=06? 'make help' lists them."),
        (["cpu", "VENV=x"], "VENV=x: take VENV=none, which uses the active Python, or"),
        (["compat"], "make compat needs a version, such as TORCH=2.9.1"),
    ],
)
def test_a_word_that_make_does_not_know_is_refused(words, line):
    result = call(["make", *words, "PYTHON=nowhere"])
    assert result.returncode != 0
    assert result.stdout == ""
    assert line in result.stderr
    assert result.stderr.count("\n") == 1


COMMANDS = {  # what takes minutes -> what it runs
    "bench": ".venv/bin/python -m tools.bench.benchmark\n",
    "outcomes": ".venv/bin/python -m tools.pages.outcomes\n",
    "mutants": ".venv/bin/python tests/mutants.py\n",
    "lock": " pip compile ",
    "site": ".venv/bin/sphinx-build -W ",
    "docs": ".venv/bin/python -m tools.pages.blocks\n",
    "docs CHECK=1": ".venv/bin/python -m tools.pages.fresh\n",
    "compat TORCH=2.9.1": " -m tools.pages.upstream\n",
}


@pytest.mark.parametrize("words", COMMANDS)
def test_a_command_that_takes_minutes_exists(words):
    result = call(["make", "-n", *words.split()])
    assert (result.returncode, result.stderr) == (0, "")
    assert COMMANDS[words] in result.stdout


def test_help_says_where_to_begin_and_has_every_target_and_variable():
    text = (ROOT / "Makefile").read_text()
    known = set(re.findall(r"[A-Z_]+(?==)", text))
    assert len(known) > 25
    words = [f"{name}=x" for name in sorted(known - {"PYTHON", "VENV"})]
    result = call(["make", *words], env={**ENV, "NPRC": "4"})  # the shell's
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[1].startswith("Begin with 'make all' ")
    assert 30 < len(lines) <= 45
    rules = re.findall(r"^([a-z_-]+(?: [a-z0-9_]+)*):", text, re.MULTILINE)
    targets = set(" ".join(rules).split()) - {"help", "help-variables"}
    listed = r"^  make ([a-z_]+(?:, [a-z0-9_]+)*)  "
    shown = re.findall(listed, result.stdout, re.MULTILINE)
    assert set(EVERY) < targets == set(", ".join(shown).split(", "))
    listed = result.stdout + call(["make", "help-variables"]).stdout
    assert max(map(len, listed.splitlines())) <= 80
    assert set(re.findall(r"[A-Z_]+(?==)", listed)) == known - {"ANSWERS"}


def test_no_shell_reads_what_make_is_given(tmp_path):
    """Nor the name of the checkout, nor a space in that of the Python."""
    odd = 'O"Brien $HOME `touch evil` $(touch evil)$(shell touch evil)'
    checkout = shutil.copytree(ROOT / "tools/run", tmp_path / odd / "tools/run")
    checkout = checkout.parents[1]
    for name in "Makefile", "exercises/Makefile":
        (checkout / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, checkout / name)
    python = tmp_path / "my python"
    python.write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n")
    python.chmod(0o755)
    targets = "diff data compare room handouts exercises exercise try inspect trace"
    targets += " check watch hint solution reset restore doctor notebooks"
    names = "A B FROM ROSTER OUT TRACK WHO E LAST NPROC SCRIPT S"
    given = [f"{name}={odd}" for name in names.split()]
    given += ["VENV=none", f"PYTHON={python}"]
    result = call(["make", *targets.split(), *given], cwd=checkout)
    assert (result.returncode, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines.count(odd) == 23  # once for each text of each target
    assert f"--ServerApp.root_dir={checkout}" in lines
    handed_on = call(["make", "exercises", *given], cwd=checkout / "exercises")
    assert (handed_on.stderr, handed_on.stdout.splitlines()[-1]) == ("", odd)
    assert list(checkout.rglob("evil")) == []


def test_make_f_from_elsewhere_says_what_to_do(tmp_path):
    result = call(["make", "-f", ROOT / "Makefile", "cpu", "OUT=x"], cwd=tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    assert "not the folder of this Makefile: make -C FOLDER goes" in result.stderr
    assert result.stderr.count("\n") == 1


BUILD = """[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""
BACKEND = """import shutil
def build_editable(folder, config_settings=None, metadata_directory=None):
    return shutil.copy("{wheel}", folder) and "{wheel}"
"""


@pytest.fixture
def checkout(tmp_path):
    """Return a copy of what makes .venv, with a wheelhouse of two tiny packages.

    An index has a newer torchvision.
    """
    shutil.copytree(ROOT / "tools/run", tmp_path / "tools/run")
    shutil.copy(ROOT / "Makefile", tmp_path)
    text = 'dependencies = ["torch", "torchvision"]\n[dependency-groups]\n'
    (tmp_path / "pyproject.toml").write_text(text)
    for folder in "tools/requirements", "house", ".venv", "index/torchvision":
        (tmp_path / folder).mkdir(parents=True)
    for size in "stages", "notebooks", "dev":
        pins = "torch==1.0\ntorchvision==1.0\nnvidia-none==1.0\n"
        (tmp_path / f"tools/requirements/{size}.txt").write_text(pins)
    for name in "torch", "torchvision":
        for version in "1.0", "2.0":
            write_wheel(tmp_path / "house", name, version)
    inspector = tmp_path / "onecurve"
    inspector.mkdir()
    wheel = write_wheel(inspector, "onecurve", "1.0")
    (inspector / "pyproject.toml").write_text(BUILD)
    (inspector / "backend.py").write_text(BACKEND.format(wheel=wheel.name))
    path = write_wheel(tmp_path / "index" / "torchvision", "torchvision", "3.0")
    path.with_name("index.html").write_text(f'<a href="{path.name}">{path.name}</a>')
    return tmp_path


def write_wheel(folder, name, version):
    """Write a package with one module, which has its version; return its path."""
    info = f"{name}-{version}.dist-info"
    about = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    tags = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(f"{name}.py", f"version = {version}\n")
        wheel.writestr(f"{info}/METADATA", about)
        wheel.writestr(f"{info}/WHEEL", tags)
        wheel.writestr(f"{info}/RECORD", "")
    return path


def make(checkout, house="house", **variables):
    """Run make in a checkout with the packages of its wheelhouse."""
    index = (checkout / "index").as_uri()
    indexes = {
        "PYTHONPATH": "",
        "UV_DEFAULT_INDEX": index,
        "PIP_INDEX_URL": index,
        "PIP_FIND_LINKS": "",
    }
    words = [f"PYTHON={sys.executable}", f"WHEELHOUSE={house}", ".venv/stages.ready"]
    return call(["make", *words], cwd=checkout, env={**ENV, **indexes, **variables})


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
    (checkout / "broken").mkdir()
    (checkout / "broken/venv.py").write_text(text)
    failed = make(checkout, PYTHONPATH="broken")
    assert failed.returncode != 0
    said = "no venv here\n" in failed.stderr and "could not make .venv" in failed.stderr
    assert said == (text == FAILS)
    result = make(checkout, PATH="/usr/bin:/bin")
    assert result.returncode == 0, result.stderr
    assert (checkout / ".venv/bin/pip").exists()


@pytest.mark.slow
@pytest.mark.parametrize("tool", ["uv", "pip"])
def test_a_wheelhouse_is_enough(checkout, tool):
    """The pinned versions are taken from it, and no index is asked."""
    uv = shutil.which("uv") or shutil.which(ROOT / ".venv/bin/uv")
    if tool == "uv" and not uv:
        pytest.skip("there is no uv here")
    (checkout / "bin").mkdir()
    if tool == "uv":
        (checkout / "bin/uv").symlink_to(uv)
    path = f"{checkout}/bin:/usr/bin:/bin"
    result = make(checkout, PATH=path)
    assert result.returncode == 0, result.stderr
    words = "import torch, torchvision; print(torch.version, torchvision.version)"
    python = checkout / ".venv/bin/python"
    assert call([python, "-c", words]).stdout == "1.0 1.0\n"
    (checkout / ".venv/stages.ready").unlink()  # or its list is newer
    again = make(checkout, PATH=path).stdout
    assert again == ".venv is ready: it has all of tools/requirements/stages.txt\n"
    assert (checkout / ".venv/stages.ready").exists()
    result = make(checkout, "tools", PATH=path)
    assert result.stderr.startswith("WHEELHOUSE=tools: it has no torch")
    (checkout / ".venv/stages.ready").unlink()
    pins = checkout / "tools/requirements/stages.txt"
    pins.write_text("torch==1.0\ntorchvision==3.0\n")
    result = make(checkout, PATH=path)
    assert "could not get all of stages.txt: see above, then try" in result.stderr
    assert not (checkout / ".venv/stages.ready").exists()


@pytest.mark.parametrize(
    ("given", "uv", "driver", "answers", "options", "cuda"),
    [
        ("", None, False, True, ["--index-url", install.PYTORCH], False),
        ("", None, True, True, [], True),
        ("", "uv", True, True, ["--torch-backend", "auto"], True),
        ("", "uv", False, False, [], True),
        ("default", "uv", False, True, [], True),
        ("https://x/cpu", "uv", True, False, ["--index-url", "https://x/cpu"], False),
    ],
)
def test_where_torch_comes_from(
    given, uv, driver, answers, options, cuda, monkeypatch, tmp_path
):
    """By TORCH_INDEX, or by the driver where PyTorch's own index answers."""
    (tmp_path / "nvidia-smi").touch(0o755 if driver else 0o644)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("TORCH_INDEX", given)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(install, "answers", lambda url: answers)
    assert install.find_torch(uv) == (options, cuda)
    monkeypatch.delenv("TORCH_INDEX")
    monkeypatch.setattr(sys, "platform", "darwin")  # whose builds are the index's
    assert install.find_torch(uv) == ([], False)


def test_a_wheelhouse_has_all_that_a_workshop_needs(monkeypatch, tmp_path, capsys):
    asked = []
    monkeypatch.setattr(install, "succeeds", lambda *words: asked.append(words) or True)
    monkeypatch.setattr(install, "find_torch", lambda uv: (["--index-url", "x"], False))
    monkeypatch.setenv("OUT", str(tmp_path))
    install.wheelhouse()
    torch, others = [" ".join(map(str, words)) for words in asked]
    for words in torch, others:
        assert f" -m pip download --only-binary :all: --dest {tmp_path} " in words
        assert " --constraint tools/requirements/notebooks.txt " in words
    assert " --index-url x " in torch and " --no-deps torch torchvision" in torch
    assert " matplotlib " in others and " jupyterlab" in others and " x " not in others
    assert capsys.readouterr().out.endswith(f"make setup WHEELHOUSE={tmp_path}\n")


def test_a_larger_size_holds_the_smaller(checkout):
    """After `make setup`, `make cpu` installs nothing."""
    python = checkout / "python"
    python.write_text('#!/bin/sh\n[ "$1" = -c ] || echo "$@" >> asked\n')
    python.chmod(0o755)
    call(["make", "PYTHON=./python", "setup"], cwd=checkout)
    for target in ".venv/stages.ready", ".venv/notebooks.ready", ".venv/dev.ready":
        assert call(["make", "PYTHON=./python", target], cwd=checkout).returncode == 0
    os.utime(checkout / "tools/requirements/stages.txt", (4e9, 4e9))  # it has changed
    call(["make", "PYTHON=./python", ".venv/stages.ready"], cwd=checkout)
    asked = (checkout / "asked").read_text().splitlines()
    assert [words.split()[-1] for words in asked] == ["notebooks", "dev", "stages"]
