"""Say what the active Python lacks: `python -m tools.run.active stages ddp`.

That is for VENV=none. The words are a size, as in `install`, and the targets of make.
"""

import re
import sys
from importlib import metadata

from tools.run.stages import ROOT, STAGES, refuse, too_old

IN_VENV = "wheelhouse", "lock", "compat"  # targets that install something
LEAVE_OUT = "or leave VENV=none out, and make installs all into .venv"


def needed(size):
    """Return the names of the packages that a size needs, by pyproject.toml."""
    text = (ROOT / "pyproject.toml").read_text()
    parts = [r"^dependencies = \[$(.*?)^\]"]
    if size != "stages":
        parts.append(r"^notebooks = \[(.*?)\]")
    if size == "dev":
        parts.append(r"^dev = \[$(.*?)^\]")
    found = []
    for part in parts:
        lines = re.search(part, text, re.MULTILINE | re.DOTALL)[1]
        lines = re.sub(r"\{.*?\}", "", lines)  # include-group
        found += re.findall(r'"([a-z-]+)[^"]*"', lines)
    return list(dict.fromkeys(found))


def is_there(name):
    """Return whether a package is installed."""
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def main():
    size, *targets = sys.argv[1:]
    for target in targets:
        if target in IN_VENV:
            refuse(f"make {target} needs .venv: leave VENV=none out")
    python = sys.executable
    if not is_there("torch"):
        refuse(f"{python} has no PyTorch: activate the one that has it, {LEAVE_OUT}")
    missing = [name for name in needed(size) if not is_there(name)]
    if missing:
        names = " ".join(missing)
        refuse(f"{python} lacks {names}: {python} -m pip install {names}, {LEAVE_OUT}")
    old = too_old(metadata.version("torch"), STAGES)  # the others say so themselves
    if old:
        refuse(old)


if __name__ == "__main__":
    main()
