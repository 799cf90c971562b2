"""Look what this machine has before anything is downloaded.

Plain Python, with the standard library alone: it runs before there is a .venv.
"""

import ctypes.util
import importlib.util
import os
import platform
import shutil
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

PYPI = "https://pypi.org/simple"
CPU = "https://download.pytorch.org/whl/cpu"
SECONDS = 5  # without an answer, before an index counts as out of reach
DISK = {True: 6.2, False: 2.0}  # GB that .venv takes with CUDA, and without


def has_driver():
    """Return whether there is a sign of an NVIDIA driver."""
    signs = "/dev/nvidiactl", "/proc/driver/nvidia", "/usr/lib/wsl/lib/libcuda.so.1"
    return bool(
        shutil.which("nvidia-smi")
        or any(map(os.path.exists, signs))
        or ctypes.util.find_library("cuda")
    )


def unreachable(url):
    """Return why there is no connection to an index, in a few words, or None."""
    try:
        urllib.request.urlopen(url, timeout=SECONDS).close()
    except urllib.error.HTTPError as error:
        return str(error) if error.code == 407 else None  # 407: a proxy's
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        # pip and uv bring their own certificates, and say what is wrong with them.
        return None if isinstance(reason, ssl.SSLError) else str(reason)
    return None


def pip_index(python=sys.executable):
    """Return the package index that uv or pip is told to use, or PyPI's."""
    for name in "UV_DEFAULT_INDEX", "PIP_INDEX_URL":
        if os.environ.get(name):
            return os.environ[name]
    # `pip config get` does not see the file that PIP_CONFIG_FILE names.
    words = [str(python), "-m", "pip", "config", "list"]
    listed = subprocess.run(words, capture_output=True, text=True).stdout
    for line in listed.splitlines():
        name, _, value = line.partition("=")
        if name == "global.index-url":
            return value.strip("'\"")
    return PYPI


def wrong_python():
    """Return why this Python cannot make a .venv in which torch runs, or None."""
    system = platform.system()
    machine = platform.machine()
    if system not in ("Linux", "Darwin"):
        return f"{system} is not enough, inside WSL it works: see SETUP.md"
    if (system, machine) == ("Darwin", "x86_64"):
        return "there is no torch for Intel Macs any more: see SETUP.md"
    if not all(map(importlib.util.find_spec, ("venv", "ensurepip"))):
        return f"{sys.executable} has no venv module (Debian: apt install python3-venv)"
    return None


def no_space(gigabytes):
    """Return which disk has less room than that, this one or uv's cache's, or None."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    cache = os.environ.get("UV_CACHE_DIR") or cache
    for folder in Path.cwd(), Path(cache):
        while not folder.exists():
            folder = folder.parent
        free = shutil.disk_usage(folder).free / 1e9
        if free < gigabytes:
            return f"{folder} has {free:.1f} GB free, and this needs {gigabytes}"
    return None


def find_problem(cuda, index):
    """Return what would stop an installation, in one line, or None.

    `cuda` says whether it is torch with CUDA. `index` is the address of the packages,
    or None if they come from a folder.
    """
    problem = wrong_python() or no_space(DISK[cuda])
    if problem or not index:
        return problem
    why = unreachable(index)
    if why:
        return f"no connection to {index} ({why}); a proxy, a mirror: see SETUP.md"
    return None
