"""The command from outside, for the tests: a script in, what is printed of it out.

Who changes how a script is inspected changes `inspect` alone.
"""

import contextlib
import io
import re
import sys
from dataclasses import dataclass

import pytest

from onecurve import __main__ as command


@dataclass
class Report:
    """What is printed of a script, with its lines in place of their numbers."""

    text: str
    status: int  # the command's exit status
    findings: list  # lines: of each finding, and its details, without the repair
    ok: list  # lines: what is right
    unchecked: list  # lines: what is not checked, the one that is always there first
    verdict: str  # line: the first


def inspect(path, *flags, folder, ranks=2, patience=60):
    """Return a Report on a script; `folder` is for what its ranks write.

    `patience` is how long a rank waits for the others, in seconds. The command runs in
    the root of all files: so none is left out since it is elsewhere.
    """
    printed = io.StringIO()
    options = ["--ranks", ranks, "--logs", folder / "logs"]
    words = [str(word) for word in ["onecurve", *options, path, *flags]]
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
        patch.chdir("/")
        patch.setattr(sys, "argv", words)
        patch.setattr("onecurve.run.PATIENCE", patience)
        with pytest.raises(SystemExit) as ended:
            command.main()
    return read(printed.getvalue(), path, int(ended.value.code))


def read(printed, path, status):
    """Return a Report of what is printed of a script."""
    code = path.read_text().splitlines()

    def line(found):
        return f"<{code[int(found[1]) - 1].strip()}>"

    text = re.sub(rf"\b{path.name}:(\d+)", line, printed).replace(f"{path.parent}/", "")
    text = re.sub(r"\d+\.\d{4,}(?<!00)\b", "#", text)  # differs by machine
    findings = re.findall(r"(?m)^(?:ERROR|SLOW|LOOK) .*|^ {9}(?!->|see ).*", text)
    lines = [re.sub(r"(?<=\S)  +|^ +", "  ", one) for one in findings]
    rows = re.sub(r"\n  (?=\w)", " ", text).splitlines()
    ok = [row[7:] for row in rows if row.startswith("ok ")]
    unchecked = [row for row in rows if row.startswith("not checked: ")]
    return Report(printed, status, lines, ok, unchecked, rows[0])
