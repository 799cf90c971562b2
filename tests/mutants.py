"""Check that tests catch bugs: `make mutants` tries each bug in tests/mutants.diff and
onecurve/tests/mutants.diff. Paths are relative to the parent of their tests/ folder.

Each bug is applied alone to a copy of the repository, and its tests run there. A bug
survives if they pass. If they time out, the result is unknown: the machine may just be
busy. Either case makes the exit status 1. Edits that no longer fit their file and tests
that can't run stop everything at once. Arguments select files by prefix:
`python tests/mutants.py 01_cpu beyond`.
"""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tools.run.edit import Edit, read_edits

PROJECTS = [Path(), Path("onecurve")]  # each has a tests folder
SECONDS = 400  # time limit for a mutant's tests
VERDICTS = {True: "SURVIVED", False: "caught", None: "timed out"}  # do the tests pass?


class Mutant(NamedTuple):
    """A bug to put into a file."""

    project: Path  # one of PROJECTS
    file: str  # relative to ROOT
    bug: str  # its description
    tests: str  # arguments of pytest, below the project's tests/
    edit: Edit


def read_mutants(files=()):
    """Return the mutants of files with one of these prefixes, or all mutants."""
    found = []
    for project in PROJECTS:
        for edit in read_edits(ROOT / project / "tests/mutants.diff"):
            name, _, bug = edit.name.partition(": ")
            path = str(project / name)
            if not files or path.startswith(files):
                found.append(Mutant(project, path, bug, edit.fields["tests"], edit))
    return found


def copy(folder):
    """Copy the repository's files, except those git ignores; return the new root."""
    words = ["git", "ls-files", "-co", "--exclude-standard"]
    names = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    for name in names.stdout.splitlines():
        if (ROOT / name).exists():
            target = Path(folder) / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target)  # keeps the mtime, which make compares
    (Path(folder) / ".venv").symlink_to(ROOT / ".venv")
    return Path(folder)


def run_tests(root, project, tests):
    """Return whether a project's tests pass in a copy; None if they time out.

    Exits if they can't run.
    """
    words = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    words += shlex.split(f"tests/{tests}")
    # Slow cases may be the ones that catch it. Stale bytecode could hide the mutant.
    settings = {"ALL": "1", "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    settings["PYTHONPATH"] = str(root / "onecurve/src")  # not .venv's
    options = {"env": {**os.environ, **settings}, "timeout": SECONDS}
    options["cwd"] = root / project
    try:
        done = subprocess.run(words, capture_output=True, text=True, **options)
    except subprocess.TimeoutExpired:
        return None
    if done.returncode not in (0, 1):
        sys.exit(f"tests/{tests} cannot run:\n{done.stdout[-3000:]}")
    return done.returncode == 0


def try_mutant(root, mutant):
    """Put a bug into a copy, run its tests, undo it and return the tests' result."""
    path = root / mutant.file
    original = path.read_text()
    path.write_text(mutant.edit.apply(original))
    passed = run_tests(root, mutant.project, mutant.tests)
    path.write_text(original)
    return passed


def main():
    mutants = read_mutants(tuple(sys.argv[1:]))
    missed = []
    with tempfile.TemporaryDirectory() as folder:
        root = copy(folder)
        for project, tests in sorted({(one.project, one.tests) for one in mutants}):
            if not run_tests(root, project, tests):
                sys.exit(f"{project}/tests/{tests} fail without a bug: fix them first")
            print(f"passed    {project}/tests/{tests}", flush=True)
        for mutant in mutants:
            verdict = VERDICTS[try_mutant(root, mutant)]
            line = f"{verdict:9} {mutant.file}: {mutant.bug}"
            print(line, flush=True)
            if verdict != "caught":
                missed.append(f"{line} (tests/{mutant.tests})")
    print(f"{len(mutants) - len(missed)} of {len(mutants)} mutants were caught")
    if missed:
        sys.exit("\n".join(["not caught:", *missed]))


if __name__ == "__main__":
    main()
