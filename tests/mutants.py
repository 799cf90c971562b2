"""Are bugs caught? `make mutants` tries each bug of tests/mutants.diff.

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
SECONDS = 400  # that the tests of a mutant may take
PASSED = 0  # pytest's exit status
FAILED = 1
TIMED_OUT = -1
WORDS = {PASSED: "SURVIVED", FAILED: "caught", TIMED_OUT: "timed out"}  # so a bug ...


class Mutant(NamedTuple):
    """An edit of a file that puts a bug into it."""

    file: str
    bug: str  # what it simulates
    tests: str  # pytest's words: below tests/
    old: str
    new: str


def read_mutants():
    """Return the mutants of tests/mutants.diff."""
    found = []
    file = ""
    text = (ROOT / "tests" / "mutants.diff").read_text()
    for part in text.split("\n\n"):
        facts = {}
        old = []
        new = []
        for line in part.splitlines():
            name, _, value = line.partition(" ")
            if line.startswith("-"):
                old.append(line[1:])
            elif line.startswith("+"):
                new.append(line[1:])
            elif name == "===":
                file = value
            elif not line.startswith("#"):
                facts[name] = value
        if facts:
            texts = "\n".join(old), "\n".join(new)
            found.append(Mutant(file, facts["bug:"], facts["tests:"], *texts))
    return found


def chosen(files):
    """Return the mutants of files that begin with one of the words; without any, all.

    Ends the program where a text is not in its file once.
    """
    found = []
    for mutant in read_mutants():
        if files and not mutant.file.startswith(files):
            continue
        times = (ROOT / mutant.file).read_text().count(mutant.old)
        if times != 1 or mutant.old == mutant.new:
            what = f"{mutant.file} has {mutant.old!r} {times} times"
            sys.exit(f"{what}: mend tests/mutants.diff")
        found.append(mutant)
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


def run_tests(root, tests):
    """Run tests in a copy; return PASSED, FAILED or TIMED_OUT.

    Ends the program where they cannot run.
    """
    words = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    words += shlex.split(f"tests/{tests}")
    # Of a long list, too, the case that sees the bug; a mutant is as old as its file.
    settings = {"ALL": "1", "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    options = {"env": {**os.environ, **settings}, "timeout": SECONDS, "cwd": root}
    try:
        done = subprocess.run(words, capture_output=True, text=True, **options)
    except subprocess.TimeoutExpired:
        return TIMED_OUT
    if done.returncode > FAILED:
        sys.exit(f"tests/{tests} cannot run:\n{done.stdout[-3000:]}")
    return done.returncode


def check_tests(root, mutants):
    """End the program where tests do not pass without any bug; say which have."""
    for tests in sorted({mutant.tests for mutant in mutants}):
        if run_tests(root, tests) != PASSED:
            sys.exit(f"without any bug, tests/{tests} do not pass")
        print(f"{'passed':9} tests/{tests}", flush=True)


def try_mutants(root, mutants):
    """Return a line for each bug that no test has noticed; print one for every bug."""
    missed = []
    for mutant in mutants:
        path = root / mutant.file
        original = path.read_text()
        path.write_text(original.replace(mutant.old, mutant.new))
        verdict = run_tests(root, mutant.tests)
        path.write_text(original)
        line = f"{WORDS[verdict]:9} {mutant.file}: {mutant.bug}"
        print(line, flush=True)
        if verdict != FAILED:
            missed.append(f"{line} (tests/{mutant.tests})")
    return missed


def main():
    mutants = chosen(tuple(sys.argv[1:]))
    with tempfile.TemporaryDirectory() as folder:
        root = copy(folder)
        check_tests(root, mutants)
        missed = try_mutants(root, mutants)
    print(f"{len(mutants) - len(missed)} of {len(mutants)} mutants were caught")
    if missed:
        sys.exit("\n".join(["these were not:", *missed]))


if __name__ == "__main__":
    main()
