"""Long lists of cases: all with ALL=1, else a part that changes from run to run.

    CASES = part("answers", ["one", "two", ...], every=8)

    @pytest.mark.parametrize("name", CASES)

The summary says which part was run. SAMPLE=N is which one: every 8th case from the Nth
on, so that eight numbers in a row run them all.
"""

import os
import random

import pytest

PARTS = {}  # from the name of a list to how many of its cases run, and of how many


def part(name, cases, every=8):
    """Return the cases to run, in order: at least one, all of them with ALL=1.

    `name` is what the summary calls them, in the plural.
    """
    chosen = list(cases)
    whole = len(chosen)
    if not os.environ.get("ALL"):
        first = int(os.environ["SAMPLE"]) % min(every, whole)
        chosen = chosen[first::every]
    PARTS[name] = len(chosen), whole
    return chosen


def pytest_configure(config):
    """Choose the part, before xdist starts its workers: they inherit it, and agree."""
    every = os.environ.get("ALL", "")
    if every not in ("", "1"):
        raise pytest.UsageError(f"ALL={every}: ALL=1 runs all cases, without it a part")
    sample = os.environ.get("SAMPLE") or str(random.randrange(1000))
    if not sample.isdecimal():
        raise pytest.UsageError(f"SAMPLE={sample}: take the number in a summary")
    os.environ["SAMPLE"] = sample


def pytest_sessionfinish(session):
    """In a worker of xdist, which prints no summary: hand over what was run."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["parts"] = PARTS


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    """Where the summary is printed: take what a worker has handed over."""
    PARTS.update(getattr(node, "workeroutput", {}).get("parts", {}))


def pytest_terminal_summary(terminalreporter):
    """Say which part of each list was run, and how to run the rest, or these again."""
    again = f"ALL=1 runs all; SAMPLE={os.environ['SAMPLE']} these again"
    for name, (some, whole) in sorted(PARTS.items()):
        told = f"{name}: all {whole}"
        if some < whole:
            told = f"{name}: {some} of {whole} ({again})"
        terminalreporter.write_line(told)
