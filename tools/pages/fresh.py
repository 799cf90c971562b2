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

DOCS = ["make", "docs", "CHECK="]  # this make would get CHECK=1 from the outer one


def git(folder, *words):
    """Run a command of git in a folder, and return the lines that it prints."""
    words = ["git", "-c", "core.quotePath=off", *words]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def copy(folder):
    """Copy what git does not ignore into a folder, where git knows it; link .venv."""
    for name in git(ROOT, "ls-files", "-co", "--exclude-standard"):
        if (ROOT / name).is_file():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target)  # with its age, which make looks at
    git(folder, "init", "-q")
    git(folder, "add", ".")
    if (ROOT / ".venv").exists():
        (folder / ".venv").symlink_to(ROOT / ".venv")


def changed_by(words):
    """Return the names of the files that a command changes; it runs in a copy.

    Raises SystemExit if the command fails.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copy(folder)
        status = subprocess.run(words, cwd=folder).returncode
        if status:
            sys.exit(f"{' '.join(words)} failed with exit status {status}")
        found = git(folder, "ls-files", "-mdo", "--exclude-standard")
    return sorted(set(found) - {".venv"})


def main():
    changed = changed_by(DOCS)
    for name in changed:
        print(f"{name} is stale: make docs")
    if changed:
        sys.exit(1)


if __name__ == "__main__":
    main()
