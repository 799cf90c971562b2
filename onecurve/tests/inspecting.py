"""Run the command on a script and read its report, for the tests.

Only `inspect` depends on how the command is run.
"""

import contextlib
import csv
import io
import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from onecurve import __main__ as command
from onecurve.watch import events

with Path(events.__file__).with_name("events.csv").open(encoding="utf-8") as file:
    FIELDS = {row["kind"]: set(row["fields"].split()) for row in csv.DictReader(file)}


@dataclass
class Report:
    """A printed report, with lines of code in place of their numbers."""

    text: str
    status: int  # the command's exit status
    findings: list  # lines: each finding and its details, without the fix
    ok: list  # lines: what was checked and is correct
    unchecked: list  # lines: what was not checked; the first one is always there
    verdict: str  # the first line


def inspect(path, *flags, folder, ranks=2, patience=60):
    """Return a Report on a script; `folder` is for its ranks' logs.

    `patience` is how many seconds a rank waits for other ranks. The command runs in /,
    so that no file is outside its folder.
    """
    printed = io.StringIO()
    options = ["--ranks", ranks, "--logs", folder / "logs"]
    words = [str(word) for word in ["onecurve", *options, path, *flags]]
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
        patch.chdir("/")
        patch.setattr(sys, "argv", words)
        patch.setattr("onecurve.compare.run.PATIENCE", patience)
        with pytest.raises(SystemExit) as ended:
            command.main()
    return read(printed.getvalue(), path, int(ended.value.code))


def with_code(text, script, name):
    """Replace line numbers of a script by its lines, and long numbers by #."""
    code = script.splitlines()

    def line(found):
        return f"<{code[int(found[1]) - 1].strip()}>"

    text = re.sub(rf"\b{name}:(\d+)", line, text)
    return re.sub(r"\d+\.\d{4,}(?<!00)\b", "#", text)  # differs by machine


def read(printed, path, status):
    """Return the Report that was printed for a script."""
    text = with_code(printed, path.read_text(), path.name)
    text = text.replace(f"{path.parent}/", "")
    findings = re.findall(r"(?m)^(?:ERROR|SLOW|LOOK) .*|^ {9}(?!->|see ).*", text)
    lines = [re.sub(r"(?<=\S)  +|^ +", "  ", one) for one in findings]
    rows = re.sub(r"\n  (?=\w)", " ", text).splitlines()
    ok = [row[7:] for row in rows if row.startswith("ok ")]
    unchecked = [row for row in rows if row.startswith("not checked: ")]
    return Report(printed, status, lines, ok, unchecked, rows[0])


def unlisted_fields(folder):
    """Return (kind, field) of events in a run's logs that events.csv doesn't list."""
    found = set()
    for path in folder.rglob("rank?"):
        for line in path.read_text().splitlines():
            event = json.loads(line)
            known = {"kind", "time"} | FIELDS.get(event["kind"], set())
            found |= {(event["kind"], one) for one in event.keys() - known}
    return found
