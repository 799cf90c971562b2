"""Is everything that `make docs` makes what is stored? `python -m tools.pages.fresh`.

`make docs CHECK=1` calls it. It makes everything anew in a copy of the checkout, and
names each file that comes out different. The checkout stays as it is.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.run.stages import ROOT

# Of the outer make, CHECK=1 would reach this one, too.
DOCS = ["make", "docs", "CHECK="]


def files(folder):
    """Return the paths of a checkout's files, without what git ignores."""
    words = ["git", "ls-files", "-z", "-co", "--exclude-standard"]
    listed = subprocess.run(words, cwd=folder, capture_output=True, check=True)
    names = sorted(set(listed.stdout.decode().split("\0")) - {""})
    return [Path(name) for name in names if (folder / name).is_file()]


def copy(folder):
    """Copy the files of the checkout into a folder, with its .venv and as much of git
    as tells which files it ignores."""
    for name in files(ROOT):
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target)  # with its age, which make looks at
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    if (ROOT / ".venv").exists():
        (folder / ".venv").symlink_to(ROOT / ".venv")


def changed_by(words):
    """Return the paths of the files that a command changes, run in a copy.

    Raises SystemExit if the command fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder)
        copy(made)
        status = subprocess.run(words, cwd=made).returncode
        if status:
            sys.exit(f"{' '.join(words)} failed with exit status {status}")
        found = []
        for name in sorted({*files(ROOT), *files(made)}):
            contents = []
            for root in ROOT, made:
                is_there = (root / name).is_file()
                contents.append((root / name).read_bytes() if is_there else None)
            if contents[0] != contents[1]:
                found.append(name)
    return found


def main():
    changed = changed_by(DOCS)
    for name in changed:
        print(f"{name} is stale: make docs")
    if changed:
        sys.exit(1)


if __name__ == "__main__":
    main()
