"""Fill in findings.csv with what the rules saw.

Columns: `level` and `what`, the message, with {facts} that the rule fills in; `repair`,
the fix; `means`, the explanation in RULES.md. `implies` are the names of findings that
follow from a bug: they become its details, if the run ended well.
`shown` is `alone` for a finding that is not even that, since its cause implies it, and
`once` for a finding of which a second one is dropped.
"""

import csv
from dataclasses import dataclass, field
from pathlib import Path

OTHER_SAMPLES = "samples do not come from a DataLoader"
LAST = "no_sync() or set_requires_gradient_sync(False) for all but the last backward()"
PARTS = "use clip_grad_norm_ on the parameters: its norm covers all ranks' shards"
PATH = Path(__file__).parent / "findings.csv"


def read_table():
    """Return {name: row of findings.csv}."""
    with open(PATH, encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return {row["name"]: row | {"implies": row["implies"].split()} for row in rows}


TABLE = read_table()


@dataclass
class Finding:
    """A finding: its level, message, line, details per rank, and fix."""

    name: str
    level: str  # ERROR, SLOW or LOOK
    what: str
    line: str | None  # such as train.py:12
    details: list
    repair: str
    factor: float | None = None  # of a gradient that differs by nothing else
    subject: str | None = None  # the expression or name that the message is about
    cause: str | None = None  # what to point to: "sync", "norm" or "rate"
    consequences: list = field(default_factory=list)  # what other findings say


def finding(row_name, line, details=(), level=None, repair=None, cause=None, **facts):
    """Fill in a row of findings.csv; `level` and `repair` override the row's."""
    row = TABLE[row_name]
    what = row["what"].format(**facts)
    level = level or row["level"]
    repair = repair or row["repair"]
    found = Finding(row_name, level, what, line, list(details), repair)
    found.subject = facts.get("text", facts.get("name"))
    found.cause = cause
    return found


def of_each_rank(values):
    """Return a line for each rank with its value."""
    return [f"rank {rank}: {value}" for rank, value in enumerate(values)]


def name_what_follows(found):
    """Return findings without duplicates; each cause names its consequences."""
    kept = []
    for one in found:
        causes = [cause for cause in found if one.name in TABLE[cause.name]["implies"]]
        again = [other for other in kept if other.name == one.name]
        shown = TABLE[one.name]["shown"]
        if causes and shown == "alone":
            continue
        if causes:
            causes[0].consequences.append(one.what)
            causes[0].details.append(f"consequence: {one.what}")
        elif not again or shown != "once":
            kept.append(one)
    return kept
