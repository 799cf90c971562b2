"""Make .venv and install a size of packages: `python -m tools.run.install stages`.

The sizes are stages, notebooks and dev, each pinned in tools/requirements/.
`wheelhouse` downloads what a later installation without a network needs. TORCH_INDEX is
an index for torch and torchvision, or `default`; WHEELHOUSE is a folder to take all
packages from. It needs the standard library alone: it runs before there is a .venv.
"""

import os
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

from tools.run.active import needed
from tools.run.stages import ROOT, refuse

VENV = Path(".venv")
PYTHON = VENV / "bin" / "python"
PIP = VENV / "bin" / "pip"  # made late: a .venv that is half made has none
PYTORCH = "https://download.pytorch.org/whl/cpu"
DISK = {True: 6.2, False: 2.0}  # GB that .venv takes with CUDA, and without


def succeeds(*words):
    """Run a command, and return whether its exit status is 0."""
    return subprocess.run(words).returncode == 0


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


def is_installed(size):
    """Return whether .venv has a size as pinned: pip then needs no index."""
    words = [PYTHON, "-m", "pip", "install", "--no-index"]
    words += ["--constraint", f"tools/requirements/{size}.txt", *needed(size)]
    return PIP.exists() and subprocess.run(words, capture_output=True).returncode == 0


def get(command, size, torch, others):
    """Have uv or pip get the packages of a size, as pinned; torch by its own options.

    torch comes first, alone: a build without CUDA then asks for no package of CUDA.
    """
    pins = ["--constraint", f"tools/requirements/{size}.txt"]
    pins += [] if sys.stderr.isatty() else ["-q"]
    done = succeeds(*command, *torch, *pins, "--no-deps", "torch", "torchvision")
    if not done or not succeeds(*command, *others, *pins, *needed(size)):
        advice = "TORCH_INDEX=default takes all of them from one index"
        refuse(f"could not get all of {size}.txt: see above, then try again; {advice}")


def install_inspector(command):
    """Have the packages of .venv hold onecurve, as this checkout has it."""
    # Without isolation: what builds it is among the packages, and no index is asked.
    options = ["-q", "--no-deps", "--no-index", "--no-build-isolation"]
    if not succeeds(*command, *options, "--editable", "onecurve"):
        refuse("could not install onecurve: see above")


def setup(size):
    """Make .venv if there is none, and install a size into it, if it is not there."""
    house = os.environ.get("WHEELHOUSE")
    if house and not list(Path(house).glob("torch-*.whl")):
        refuse(f"WHEELHOUSE={house}: it has no torch; 'make wheelhouse' fills one")
    if is_installed(size):
        install_inspector([PYTHON, "-m", "pip", "install"])
        print(f".venv is ready: it has all of tools/requirements/{size}.txt")
        return
    uv = shutil.which("uv")
    if house:
        torch = others = ["--no-index", "--find-links", house]
        cuda = any(Path(house).glob("nvidia*"))
    else:
        torch, cuda = find_torch(uv)
        others = []
    if not PIP.exists():
        print(f"Making .venv with {sys.executable}", flush=True)
        if not succeeds(sys.executable, "-m", "venv", VENV):
            refuse(f"{sys.executable} could not make .venv: see above")
    command = [PYTHON, "-m", "pip", "install"]
    if uv:
        command = [uv, "pip", "install", "--compile-bytecode", "--python", PYTHON]
    print(f"Installing {size}: up to {DISK[cuda]} GB on disk. Once.", flush=True)
    get(command, size, torch, others)
    install_inspector(command)


def wheelhouse():
    """Download the wheels of `make setup`, for this system and this Python."""
    house = Path(os.environ.get("OUT") or "wheelhouse").resolve()
    command = [sys.executable, "-m", "pip", "download"]
    command += ["--only-binary", ":all:", "--dest", house]
    torch, _ = find_torch(uv=None)
    get(command, "notebooks", torch, ["--find-links", house])
    print(f"on machines like this, without a network: make setup WHEELHOUSE={house}")


if __name__ == "__main__":
    os.chdir(ROOT)
    try:
        wheelhouse() if sys.argv[1] == "wheelhouse" else setup(sys.argv[1])
    except KeyboardInterrupt:
        sys.exit(130)
