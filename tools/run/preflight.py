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
PROXIES = "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"


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
        return "the proxy asks who you are" if error.code == 407 else None
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
    system, machine = platform.system(), platform.machine()
    if system not in ("Linux", "Darwin"):
        return f"{system} is not enough, inside WSL it works: see SETUP.md"
    if (system, machine) == ("Darwin", "x86_64"):
        return "there is no torch for Intel Macs any more: see SETUP.md"
    if not all(map(importlib.util.find_spec, ("venv", "ensurepip"))):
        return f"{sys.executable} has no venv module (Debian: apt install python3-venv)"
    return None


def no_space(gigabytes):
    """Return a line for each disk with less room than that: here, and of uv's cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    cache = Path(os.environ.get("UV_CACHE_DIR") or cache)
    lines = {}
    for folder in Path.cwd(), cache:
        while not folder.exists():
            folder = folder.parent
        free = shutil.disk_usage(folder).free / 1e9
        if free < gigabytes:
            line = f"{folder} has {free:.1f} GB free, and this needs {gigabytes}"
            lines[folder.stat().st_dev] = line
    return list(lines.values())


def look(cuda, index):
    """Return a line for each problem that would stop an installation.

    `cuda` says whether it is torch with CUDA. `index` is the address of the packages,
    or None if they come from a folder.
    """
    problem = wrong_python()
    if problem:
        return [problem]
    problems = no_space(DISK[cuda])
    if problems or not index:
        return problems
    why = unreachable(index)
    if not why:
        return []
    through = "and no proxy is set"
    for name in PROXIES:
        if os.environ.get(name):
            through = f"through the {name} that is set"
            break
    return [f"no connection to {index} ({why}), {through}: SETUP.md"]
