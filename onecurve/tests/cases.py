"""The cases in mistakes.diff and ordinary.diff: edits of right.py, and their scripts.

A case begins with `=== NAME`. Lines with `-` occur exactly once in right.py, and the
lines with `+` below replace them. A case without `-` is a whole script. The expected
findings follow an empty line.
"""

import re
from pathlib import Path

RIGHT = Path(__file__).with_name("right.py")
MISTAKES = Path(__file__).with_name("mistakes.diff")
HUNK = re.compile(r"((?:^-.*\n)*)((?:^\+.*\n)+)", re.MULTILINE)


def read_cases(path=MISTAKES):
    """Return {name: (edits, expected lines)} for a file of cases."""
    cases = {}
    _, *parts = path.read_text().split("\n=== ")
    for part in parts:
        name, _, body = part.partition("\n")
        edits, _, expected = body.partition("\n\n")
        cases[name] = edits, expected.splitlines()
    return cases


def unmarked(lines):
    """Join lines, without the mark at the start of each."""
    return re.sub("(?m)^.", "", lines).rstrip("\n")


def script_of(edits):
    """Return the text of a case's script.

    Raises ValueError unless each string to replace occurs exactly once in right.py.
    """
    script = RIGHT.read_text()
    for old, new in HUNK.findall(edits + "\n"):
        if not old:
            return unmarked(new)
        count = script.count(unmarked(old))
        if count != 1:
            raise ValueError(f"{count} times in right.py: {unmarked(old)!r}")
        script = script.replace(unmarked(old), unmarked(new))
    return script
