"""Are bugs caught? `make mutants` tries each bug of two files, tests/mutants.diff and
onecurve/tests/mutants.diff. In a file, paths begin at the folder above its tests.

Each bug is put, alone, into a copy of the repository, and the tests that matter run
there. A bug that they pass survives. Where the tests take too long, nobody knows: the
machine may only be busy. For either, the exit status is 1. A text that is not in its
file any more, or tests that cannot run, end everything at once. Words limit it to files
that begin so: `python tests/mutants.py 01_cpu beyond`.
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

PROJECTS = [Path(), Path("onecurve")]  # each has a folder tests
SECONDS = 400  # that the tests of a mutant may take
VERDICTS = {True: "SURVIVED", False: "caught", None: "timed out"}  # do the tests pass?


class Mutant(NamedTuple):
    """A bug that is put into a file."""

    project: Path  # of PROJECTS
    file: str  # below ROOT
    bug: str  # what it simulates
    tests: str  # pytest's words: below the project's tests/
    edit: Edit


def read_mutants(files=()):
    """Return the mutants of files that begin with one of the words, or all."""
    found = []
    for project in PROJECTS:
        for edit in read_edits(ROOT / project / "tests/mutants.diff"):
            name, _, bug = edit.name.partition(": ")
            path = str(project / name)
            if not files or path.startswith(files):
                found.append(Mutant(project, path, bug, edit.fields["tests"], edit))
    return found


def copy(folder):
    """Copy the files of the repository, without what git ignores; return the copy."""
    words = ["git", "ls-files", "-co", "--exclude-standard"]
    names = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    for name in names.stdout.splitlines():
        if (ROOT / name).exists():
            target = Path(folder) / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target)  # with its age, which make looks at
    (Path(folder) / ".venv").symlink_to(ROOT / ".venv")
    return Path(folder)


def run_tests(root, project, tests):
    """Return whether a project's tests pass in a copy; None if they take too long.

    Ends the program where they cannot run.
    """
    words = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    words += shlex.split(f"tests/{tests}")
    # Of a long list, too, the case that sees the bug; a mutant is as old as its file.
    settings = {"ALL": "1", "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    settings["PYTHONPATH"] = str(root / "onecurve/src")  # not the one of .venv
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
    """Put a bug into a copy, return what `run_tests` does, and take it out again."""
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
                sys.exit(f"without any bug, {project}/tests/{tests} do not pass")
            print(f"passed    {project}/tests/{tests}", flush=True)
        for mutant in mutants:
            verdict = VERDICTS[try_mutant(root, mutant)]
            line = f"{verdict:9} {mutant.file}: {mutant.bug}"
            print(line, flush=True)
            if verdict != "caught":
                missed.append(f"{line} (tests/{mutant.tests})")
    print(f"{len(mutants) - len(missed)} of {len(mutants)} mutants were caught")
    if missed:
        sys.exit("\n".join(["these were not:", *missed]))


if __name__ == "__main__":
    main()
