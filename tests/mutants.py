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
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import pytest
import torch  # noqa: F401  # here, so that no test has to wait for it

ROOT = Path(__file__).resolve().parents[1]
SECONDS = 400  # that a mutant's tests may take
# what tests do
PASSED = "pass"
FAILED = "fail"
TIMED_OUT = "time out"
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
            mutant = Mutant(
                file, facts["bug:"], facts["tests:"], "\n".join(old), "\n".join(new)
            )
            found.append(mutant)
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
            sys.exit(
                f"{mutant.file} has {mutant.old!r} {times} times: "
                "mend tests/mutants.diff"
            )
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


class Trial:
    """Tests that run in a copy, with a mutant or without any.

    They run in a forked process, which has imported PyTorch and pytest already.
    """

    def __init__(self, root, tests, mutant):
        self.root = root
        self.tests = tests
        self.mutant = mutant
        self.end = time.monotonic() + SECONDS
        self.printed = tempfile.TemporaryFile()  # noqa: SIM115
        if mutant:
            path = root / mutant.file
            self.original = path.read_text()
            path.write_text(self.original.replace(mutant.old, mutant.new))
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            self.become_tests()

    def become_tests(self):
        """In the forked process: run the tests, and end."""
        os.setsid()
        os.chdir(self.root)
        sys.path[0] = str(self.root / "tests")  # not this repository's own
        os.dup2(self.printed.fileno(), 1)
        os.dup2(self.printed.fileno(), 2)
        os.environ["OMP_NUM_THREADS"] = "1"
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        os.environ["ALL"] = "1"  # of a long list, too, the case that sees the bug
        sys.dont_write_bytecode = True
        options = ["-x", "-q", "-p", "no:cacheprovider"]
        status = 3  # of an internal error
        try:
            status = pytest.main([*options, *shlex.split(f"tests/{self.tests}")])
        finally:
            sys.stdout.flush()
            os._exit(status)

    def verdict(self):
        """Return PASSED, FAILED or TIMED_OUT, or None while the tests run."""
        late = time.monotonic() > self.end
        if late:
            os.killpg(self.pid, signal.SIGKILL)
        ended, status = os.waitpid(self.pid, 0 if late else os.WNOHANG)
        if not ended:
            return None
        if self.mutant:
            (self.root / self.mutant.file).write_text(self.original)
        if late:
            return TIMED_OUT
        if os.waitstatus_to_exitcode(status) > 1:
            sys.exit(f"tests/{self.tests} cannot run:\n{self.last_lines()}")
        return FAILED if status else PASSED

    def last_lines(self):
        """Return the end of what the tests have printed."""
        self.printed.seek(0)
        return self.printed.read().decode(errors="replace")[-3000:]


def run_trials(roots, jobs):
    """Yield (Trial, verdict) for each job (tests, mutant), one at a time in a copy."""
    waiting = list(jobs)
    free = list(roots)
    running = []
    while waiting or running:
        while waiting and free:
            tests, mutant = waiting.pop(0)
            running.append(Trial(free.pop(), tests, mutant))
        time.sleep(0.05)
        for trial in list(running):
            verdict = trial.verdict()
            if verdict:
                running.remove(trial)
                free.append(trial.root)
                yield trial, verdict


def check_tests(roots, mutants):
    """End the program where tests do not pass without any bug; say which have."""
    needed = sorted({mutant.tests for mutant in mutants})
    for trial, verdict in run_trials(roots, [(tests, None) for tests in needed]):
        if verdict != PASSED:
            what = f"without any bug, tests/{trial.tests} {verdict}"
            sys.exit(f"{what}:\n{trial.last_lines()}")
        print(f"{'passed':9} tests/{trial.tests}", flush=True)


def try_mutants(roots, mutants):
    """Return a line for each bug that no test has noticed; print one for every bug."""
    missed = []
    jobs = [(mutant.tests, mutant) for mutant in mutants]
    for trial, verdict in run_trials(roots, jobs):
        line = f"{WORDS[verdict]:9} {trial.mutant.file}: {trial.mutant.bug}"
        print(line, flush=True)
        if verdict != FAILED:
            missed.append(f"{line} (tests/{trial.tests})")
    return missed


def main():
    mutants = chosen(tuple(sys.argv[1:]))
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        roots = [copy(one), copy(two)]
        check_tests(roots, mutants)
        missed = try_mutants(roots, mutants)
    print(f"{len(mutants) - len(missed)} of {len(mutants)} mutants were caught")
    if missed:
        sys.exit("\n".join(["these were not:", *missed]))


if __name__ == "__main__":
    main()
