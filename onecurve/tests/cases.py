"""The cases in rules/*.diff and ordinary.diff: edits of right.py, and their scripts.

A rule's cases are in the file with its name: mistakes that it finds, and right scripts
that it might accuse. A case begins with `=== NAME`. Lines with `-` occur exactly once
in right.py, and the lines with `+` below replace them. A case without `-` is a whole
script. The expected findings follow an empty line, without fixes and pages. <...> is
the script's line whose number is shown, and # a number with many digits.
"""

import re
from pathlib import Path

FOLDER = Path(__file__).parent
RIGHT = FOLDER / "right.py"
ORDINARY = FOLDER / "ordinary.diff"
HUNK = re.compile(r"((?:^-.*\n)*)((?:^\+.*\n)+)", re.MULTILINE)


def rule_files():
    """Return {rule: the file of its cases}."""
    return {path.stem: path for path in sorted((FOLDER / "rules").glob("*.diff"))}


def read_cases(*paths):
    """Return {name: (edits, expected lines)} for files of cases."""
    cases = {}
    for path in paths:
        _, *parts = f"\n{path.read_text()}".split("\n=== ")
        for part in parts:
            name, _, body = part.partition("\n")
            edits, _, expected = body.partition("\n\n")
            cases[name] = edits.rstrip("\n"), expected.splitlines()
    return cases


def write_expected(path, lines):
    """Rewrite the expected lines of cases in a file, by {name: lines}."""
    parts = []
    for name, (edits, old) in read_cases(path).items():
        expected = "".join(f"\n{line}" for line in ["", *lines.get(name, old)])
        parts.append(f"=== {name}\n{edits}{expected if expected.strip() else ''}\n")
    path.write_text("\n".join(parts))


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
