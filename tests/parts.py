"""Long lists of cases: all with ALL=1, else a part that changes from run to run.

    CASES = part("answers", ["one", "two", ...], every=8)

    @pytest.mark.parametrize("name", CASES)

The summary says which part was run. SAMPLE=N is which one: every 8th case from the Nth
on, so that eight numbers in a row run them all.

Where a case says from which files it comes, it also runs if one of them has changed
since all cases passed: passed.json has the digests that the latest run of them all saw.
Where many have changed it is a quarter of those, which SAMPLE chooses as well, or less
of a list that says so.

Of the tests that hold scripts, a run of all tests makes a quarter while these scripts
are as they were when all of them passed. Who names files of tests gets all in them.
"""

import functools
import hashlib
import json
import os
import random
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PASSED = Path(__file__).with_name("passed.json")
# From the name of a list to how many of its cases run, of how many, and their digests.
PARTS = {}
SCRIPTS = {  # a folder of tests -> the scripts that they hold
    "stages": ["0*/mnist.py"],
    "beyond": ["0*/mnist.py", "beyond/**/*.py"],
    "transformer": ["transformer/**/*.py"],
}
FEW = 4  # cases that have changed are all run


def part(name, cases, every=8, sources=None, changed_every=FEW):
    """Return the cases to run, in order: at least one, all of them with ALL=1.

    `name` is what the summary calls them, in the plural. `sources` is a function that
    returns what a case comes from: paths of files and folders, and texts. Where more
    than FEW have changed, every `changed_every`-th of those runs.
    """
    whole = list(cases)
    digests = {str(case): digest(sources(case)) for case in whole} if sources else {}
    chosen = whole
    if not os.environ.get("ALL"):
        passed = read_passed().get(name, {})
        changed = [
            case for case in whole if digests.get(str(case)) != passed.get(str(case))
        ]
        number = int(os.environ["SAMPLE"])
        if len(changed) > FEW:
            changed = changed[number % changed_every :: changed_every]
        some = whole[number % min(every, len(whole)) :: every]
        chosen = [case for case in whole if case in some or case in changed]
    PARTS[name] = len(chosen), len(whole), digests
    return chosen


def read_passed():
    """Return {list: {case: digest}} of the latest run of all its cases that passed."""
    return json.loads(PASSED.read_text()) if PASSED.exists() else {}


def digest(sources):
    """Return a digest of texts, of files, and of PyTorch's version."""
    parts = [metadata.version("torch").partition("+")[0]]
    for source in sources:
        if isinstance(source, str):
            parts.append(source)
            continue
        below = sorted(source.rglob("*")) if source.is_dir() else [source]
        for file in below:
            if file.is_file() and "__pycache__" not in file.parts:
                parts.append(f"{file.relative_to(ROOT)} {file_digest(file)}")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


@functools.cache
def file_digest(path):
    """Return a digest of what a file has."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def pytest_configure(config):
    """Choose the part, before xdist starts its workers: they inherit it, and agree."""
    os.environ["SAMPLE"] = os.environ.get("SAMPLE") or str(random.randrange(1000))
    if config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        os.environ["NOTHING_NAMED"] = "1"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """Leave out three quarters of the tests that hold scripts, unless these changed."""
    left_out = set()
    for folder, patterns in SCRIPTS.items() if "NOTHING_NAMED" in os.environ else ():
        tests = ROOT / "tests" / folder
        own = [item for item in items if item.path.parent == tests]
        sources = [tests, tests.parent / "conftest.py"]
        for pattern in patterns:
            sources += sorted(ROOT.glob(pattern))
        name = f"tests in {folder}"
        digests = {folder: digest(sources)}
        chosen = own
        if read_passed().get(name) == digests and not os.environ.get("ALL"):
            chosen = own[int(os.environ["SAMPLE"]) % FEW :: FEW]
        PARTS[name] = len(chosen), len(own), digests
        left_out |= set(own) - set(chosen)
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]


def pytest_sessionfinish(session, exitstatus):
    """In a worker of xdist, hand over what was run; else note which lists passed."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["parts"] = PARTS
        return
    options = session.config.option
    limited = options.keyword or options.markexpr or options.collectonly
    if limited or exitstatus or any("::" in word for word in session.config.args):
        return
    passed = read_passed()
    for name, (some, whole, digests) in PARTS.items():
        if some == whole and digests:
            passed[name] = digests
    if passed != read_passed():
        PASSED.write_text(json.dumps(passed, indent=1, sort_keys=True) + "\n")


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    """Where the summary is printed: take what a worker has handed over."""
    PARTS.update(getattr(node, "workeroutput", {}).get("parts", {}))


def pytest_terminal_summary(terminalreporter):
    """Say which part of each list was run, and how to run the rest, or these again."""
    again = f"ALL=1 runs all; SAMPLE={os.environ['SAMPLE']} these again"
    for name, (some, whole, _) in sorted(PARTS.items()):
        told = f"{some} of {whole} ({again})" if some < whole else f"all {whole}"
        terminalreporter.write_line(f"{name}: {told}")
