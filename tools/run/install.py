"""Make .venv and install a list of packages: `python -m tools.run.install learn`.

The lists are learn and dev, each pinned in tools/requirements/. TORCH_INDEX is an index
for torch and torchvision, or `default`. This needs the standard library alone: it runs
before there is a .venv.
"""

import os
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

from tools import asked
from tools.run.packages import INSPECTOR, needed
from tools.run.stages import ROOT, refuse

VENV = Path(".venv")
PYTHON = VENV / "bin" / "python"
PIP = VENV / "bin" / "pip"  # made late: a .venv that is half made has none
PYTORCH = "https://download.pytorch.org/whl/cpu"
DISK = {True: 6.2, False: 2.0}  # GB that .venv takes with CUDA, and without
GROUPS = {"learn": ["learn"], "dev": ["learn", "dev"]}


def succeeds(*words, **options):
    """Run a command, and return whether its exit status is 0."""
    return subprocess.run(words, **options).returncode == 0


def answers(url):
    """Return whether a package index answers within five seconds."""
    try:
        urllib.request.urlopen(url, timeout=5).close()
    except (OSError, ValueError):
        return False
    return True


def find_torch(uv):
    """Return (options of uv or pip for a build of torch, whether it is one with CUDA).

    Without options it is the build of the package index: on Linux, one with CUDA.
    """
    index = os.environ.get("TORCH_INDEX", "default" if sys.platform != "linux" else "")
    if index == "default":
        return [], sys.platform == "linux"
    if index:
        return ["--index-url", index], not index.endswith("/cpu")
    if not answers(f"{PYTORCH}/torch/"):
        print(f"{PYTORCH} does not answer: torch with CUDA, from the package index")
        return [], True
    has_driver = shutil.which("nvidia-smi") is not None
    if not has_driver:
        print("no NVIDIA driver: torch for CPUs (TORCH_INDEX=default: with CUDA)")
    if uv:
        return ["--torch-backend", "auto"], has_driver
    return ([], True) if has_driver else (["--index-url", PYTORCH], False)


def is_installed(pins, names):
    """Return whether .venv has packages as pinned: pip then needs no index."""
    words = [PYTHON, "-m", "pip", "install", "--no-index", *pins, *names]
    return PIP.exists() and succeeds(*words, capture_output=True)


def get(command, name, pins, names, torch):
    """Have uv or pip get the packages of a list; torch by its own options.

    torch comes first, alone: a build without CUDA then asks for no package of CUDA.
    """
    pins = [*pins] if sys.stderr.isatty() else [*pins, "-q"]
    done = succeeds(*command, *torch, *pins, "--no-deps", "torch", "torchvision")
    if not done or not succeeds(*command, *pins, *names):
        advice = "TORCH_INDEX=default takes all of them from one index"
        refuse(f"could not get all of {name}.txt: see above, then try again; {advice}")


def install_inspector(command):
    """Install onecurve as this checkout has it."""
    # Without isolation: what builds it is among the packages, and no index is asked.
    options = ["-q", "--no-deps", "--no-index", "--no-build-isolation"]
    if not succeeds(*command, *options, "--editable", INSPECTOR):
        refuse(f"could not install {INSPECTOR}: see above")


def install(name):
    """Make .venv if there is none, and install a list into it, if it is not there."""
    pins = ["--constraint", f"tools/requirements/{name}.txt"]
    names = needed(*GROUPS[name])
    pip = [PYTHON, "-m", "pip", "install"]
    if is_installed(pins, names):
        install_inspector(pip)
        print(f".venv is ready: it has all of tools/requirements/{name}.txt")
        return
    uv = shutil.which("uv")
    torch, cuda = find_torch(uv)
    if not PIP.exists():
        print(f"Making .venv with {sys.executable}", flush=True)
        if not succeeds(sys.executable, "-m", "venv", VENV):
            refuse(f"{sys.executable} could not make .venv: see above")
    command = pip
    if uv:
        command = [uv, "pip", "install", "--compile-bytecode", "--python", PYTHON]
    print(f"Installing {name}: up to {DISK[cuda]} GB on disk. Once.", flush=True)
    get(command, name, pins, names, torch)
    install_inspector(command)


def say_ready():
    """Say that all is installed, which make has seen to."""
    print(".venv has all that a workshop needs: make doctor")


if __name__ == "__main__":
    os.chdir(ROOT)
    asked.set_environment()
    try:
        install(sys.argv[1])
    except KeyboardInterrupt:
        sys.exit(130)
