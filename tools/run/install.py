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
FOR_CPUS = "https://download.pytorch.org/whl/cpu"
GROUPS = {"learn": ["learn"], "dev": ["learn", "dev"]}


def answers(url):
    """Return whether a package index answers within five seconds."""
    try:
        urllib.request.urlopen(url, timeout=5).close()
    except (OSError, ValueError):
        return False
    return True


def index_of_torch():
    """Return pip's options for the index that has torch and torchvision.

    Without options, it is the package index, whose builds for Linux need CUDA: a laptop
    without a GPU is spared these.
    """
    index = os.environ.get("TORCH_INDEX", "")
    if index and index != "default":
        return ["--index-url", index]
    has_driver = shutil.which("nvidia-smi") is not None
    if index == "default" or sys.platform != "linux" or has_driver:
        return []
    if not answers(f"{FOR_CPUS}/torch/"):
        print(f"{FOR_CPUS} does not answer: torch with CUDA, from the package index")
        return []
    print("no NVIDIA driver: torch for CPUs (TORCH_INDEX=default: with CUDA)")
    return ["--index-url", FOR_CPUS]


def install(name):
    """Make .venv if there is none, or half of one, and install a list into it."""
    if not PIP.exists():
        print(f"Making .venv with {sys.executable}", flush=True)
        if subprocess.run([sys.executable, "-m", "venv", VENV]).returncode:
            refuse(f"{sys.executable} could not make .venv: see above")
    index = index_of_torch()
    print(f"Installing {name}: 2 GB on disk, or 6.2 GB with CUDA. Once.", flush=True)
    pip = [PYTHON, "-m", "pip", "install"]
    pip += ["--constraint", f"tools/requirements/{name}.txt"]
    pip += [] if sys.stderr.isatty() else ["-q"]
    # torch comes first, alone: a build without CUDA then asks for no package of CUDA.
    # The inspector comes last, and what builds it is among the packages.
    for words in (
        [*index, "--no-deps", "torch", "torchvision"],
        needed(*GROUPS[name]),
        ["--no-deps", "--no-index", "--no-build-isolation", "--editable", INSPECTOR],
    ):
        if subprocess.run([*pip, *words]).returncode:
            advice = "TORCH_INDEX=default takes all of them from one index"
            refuse(f"could not get all of {name}.txt: see above; {advice}")


if __name__ == "__main__":
    os.chdir(ROOT)
    asked.set_environment()
    try:
        install(sys.argv[1])
    except KeyboardInterrupt:
        sys.exit(130)
