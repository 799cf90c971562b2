"""Say what the active Python lacks, for VENV=none: `python -m tools.run.active stages`.

The word is a size, as in `install`. It needs the standard library alone.
"""

import re
import sys
from importlib import metadata

from tools.run.stages import ROOT, STAGES, refuse, too_old


def needed(size):
    """Return the names of the packages that a size needs, by pyproject.toml."""
    text = (ROOT / "pyproject.toml").read_text()
    # each size holds the one before: the lists stand in this order
    ends = {"stages": "[dependency-groups]", "notebooks": "site =", "dev": "[tool."}
    listed = text[text.index("dependencies =") : text.index(ends[size])]
    if sys.version_info >= (3, 11):
        listed = re.sub(r".*python_version < '3.11'.*", "", listed)
    return list(dict.fromkeys(re.findall(r'(?<!= )"([a-z-]+)', listed)))


def is_there(name):
    """Return whether a package is installed."""
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def main():
    missing = [name for name in needed(sys.argv[1]) if not is_there(name)]
    if not is_there("onecurve"):
        missing.append("./onecurve")
    if missing:
        names = " ".join(missing)
        advice = f"activate another, or {sys.executable} -m pip install {names}"
        end = "or leave VENV=none out, and make installs all into .venv"
        refuse(f"{sys.executable} lacks {names}: {advice}, {end}")
    old = too_old(metadata.version("torch"), STAGES)  # the others say so themselves
    if old:
        refuse(old)


if __name__ == "__main__":
    main()
