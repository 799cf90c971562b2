"""List the packages that the commands need, and those that this Python lacks."""

import re
import sys
from importlib import metadata

from tools.run.stages import ROOT, refuse

INSPECTOR = "onecurve"  # in this repository


def needed(*groups):
    """Return the package names in pyproject.toml's dependencies and some groups."""
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
    """Exit with a one-line message if this Python lacks packages."""
    missing = [name for name in needed() if not is_there(name)]
    if not is_there(INSPECTOR):
        missing.append(f"./{INSPECTOR}")
    if missing:
        names = " ".join(missing)
        command = f"{sys.executable} -m pip install {names}"
        refuse(f"{sys.executable} lacks packages. Install them: {command}")
