"""Create .venv and install a list of packages: `python -m tools.run.install learn`.

The lists, learn and dev, are pinned in tools/requirements/. TORCH_INDEX is an index for
torch and torchvision, or `default`. This runs before .venv exists, so it uses only the
standard library.
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
PIP = VENV / "bin" / "pip"  # created late, so a partial .venv lacks it
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
    """Return pip's options for the index of torch and torchvision.

    No options means the package index, whose Linux builds include CUDA. Without a GPU,
    we avoid them.
    """
    index = os.environ.get("TORCH_INDEX", "")
    if index and index != "default":
        return ["--index-url", index]
    has_driver = shutil.which("nvidia-smi") is not None
    if index == "default" or sys.platform != "linux" or has_driver:
        return []
    if not answers(f"{FOR_CPUS}/torch/"):
        print(f"no answer from {FOR_CPUS}: installing torch with CUDA instead")
        return []
    print("no NVIDIA driver: installing torch for CPUs (TORCH_INDEX=default has CUDA)")
    return ["--index-url", FOR_CPUS]


def install(name):
    """Create .venv if it is missing or incomplete, and install a list into it."""
    if not PIP.exists():
        print(f"Creating .venv with {sys.executable}", flush=True)
        if subprocess.run([sys.executable, "-m", "venv", VENV]).returncode:
            refuse(f"{sys.executable} could not create .venv: see above")
    index = index_of_torch()
    print(f"Installing {name} (once): 2 GB on disk, 6.2 GB with CUDA", flush=True)
    pip = [PYTHON, "-m", "pip", "install"]
    pip += ["--constraint", f"tools/requirements/{name}.txt"]
    pip += [] if sys.stderr.isatty() else ["-q"]
    # First torch, alone, so that a build without CUDA pulls in no CUDA packages.
    # The inspector comes last, because its build backend is one of the packages.
    for words in (
        [*index, "--no-deps", "torch", "torchvision"],
        needed(*GROUPS[name]),
        ["--no-deps", "--no-index", "--no-build-isolation", "--editable", INSPECTOR],
    ):
        if subprocess.run([*pip, *words]).returncode:
            advice = "TORCH_INDEX=default uses one index for all"
            refuse(f"could not install all of {name}.txt: see above. {advice}")


if __name__ == "__main__":
    os.chdir(ROOT)
    asked.set_environment()
    try:
        install(sys.argv[1])
    except KeyboardInterrupt:
        sys.exit(130)
