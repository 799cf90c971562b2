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
        # pip and uv bring their own certificates, and say what is wrong with them
        return None if isinstance(reason, ssl.SSLError) else str(reason)
    return None


def pip_index(python=sys.executable):
    """Return the package index that uv or pip was told to use, or PyPI's."""
    for name in "UV_DEFAULT_INDEX", "PIP_INDEX_URL":
        if os.environ.get(name):
            return os.environ[name]
    words = [str(python), "-m", "pip", "config", "get", "global.index-url"]
    return subprocess.run(words, capture_output=True, text=True).stdout.strip() or PYPI


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
    """Return lines on the folders with less room than that: here, and uv's cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    cache = Path(os.environ.get("UV_CACHE_DIR") or cache)
    found = {}
    for folder in Path.cwd(), cache:
        folder = next(path for path in [folder, *folder.parents] if path.exists())
        found[folder.stat().st_dev] = folder, shutil.disk_usage(folder).free / 1e9
    return [
        f"{folder} has {free:.1f} GB free, and this needs {gigabytes}"
        for folder, free in found.values()
        if free < gigabytes
    ]


def look(cuda, index):
    """Return a line for each thing that is wrong for an installation.

    `cuda`: of torch with CUDA. `index` is the address of the packages, or None where
    they come from a folder.
    """
    lines = [wrong_python()] if wrong_python() else no_space(DISK[cuda])
    why = unreachable(index) if index and not lines else None
    if why:
        proxy = next((name for name in PROXIES if os.environ.get(name)), None)
        through = f"through the {proxy} that is set" if proxy else "and no proxy is set"
        lines.append(f"no connection to {index} ({why}), {through}: SETUP.md")
    return lines
