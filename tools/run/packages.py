"""Which packages the commands need, and which of them this Python lacks."""

import re
import sys
from importlib import metadata

from tools.run.stages import ROOT, refuse

INSPECTOR = "onecurve"  # which this repository has


def needed(*groups):
    """Return the names of the packages in pyproject.toml's dependencies.

    Those of dependency groups are added.
    """
    text = (ROOT / "pyproject.toml").read_text()
    lists = "|".join(["dependencies", *groups])
    listed = "".join(re.findall(rf"(?ms)^(?:{lists}) = \[(.*?)^\]", text))
    if sys.version_info >= (3, 11):
        listed = re.sub(r".*python_version < '3.11'.*", "", listed)
    return list(dict.fromkeys(re.findall(r'^ *"([a-z-]+)', listed, re.MULTILINE)))


def is_there(name):
    """Return whether a package is installed."""
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def refuse_missing():
    """End the program with one line if this Python lacks packages."""
    missing = [name for name in needed() if not is_there(name)]
    if not is_there(INSPECTOR):
        missing.append(f"./{INSPECTOR}")
    if missing:
        names = " ".join(missing)
        command = f"{sys.executable} -m pip install {names}"
        refuse(f"{sys.executable} lacks packages. Install them: {command}")
