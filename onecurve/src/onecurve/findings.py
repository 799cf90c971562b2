"""What the rules find: the table of findings.csv, filled in with what was seen."""

import csv
from dataclasses import dataclass
from pathlib import Path

SHOWN = 3  # of names
OTHER_SAMPLES = "samples do not come from a DataLoader"
LAST = "no_sync() or set_requires_gradient_sync(False) for all but the last backward()"
PARTS = "use clip_grad_norm_ on the parameters: its norm covers all ranks' shards"
PATH = Path(__file__).parent / "findings.csv"

# What follows from a mistake is none of its own; and what two rules find is one.
FOLLOWS = {
    "finite": {"exchange", "weights", "clip", "gradient", "evaluated_weights", "zero"},
    "other_batches": {"weights", "gradient", "clip", "evaluated_weights"},
    "other_type": {"weights", "clip", "evaluated_weights", "by_world"},
    "exchange": {"weights", "clip", "gradient", "buffers", "evaluated_weights"},
    "weights": {"gradient", "evaluated_weights"},
    "clip": {"gradient"},
    "gradient": {"added"},
    "overlap": {"added"},
    "evaluated": {"by_world"},
    "twice": {"by_world"},
    "buffers": {"by_world", "printed"},
    "samples": {"updates"},
    "datasets": {"by_world"},
    "evaluated_weights": {"by_world"},
}
UNSAID = {"evaluated_weights", "by_world", "updates"}  # the cause says as much
SAME = {"clip", "exchange", "overlap"}


def read_table():
    """Return {name: row of findings.csv}."""
    with open(PATH, encoding="utf-8") as file:
        return {row["name"]: row for row in csv.DictReader(file)}


TABLE = read_table()


@dataclass
class Finding:
    """What was found: how bad it is, where, what each rank had, what repairs it."""

    name: str
    level: str  # ERROR, SLOW or LOOK
    what: str
    line: str | None  # such as train.py:12
    details: list
    repair: str


def finding(row_name, line, details=(), level=None, repair=None, **facts):
    """Return a Finding by a row of findings.csv, its text filled in with `facts`.

    `level` and `repair` are those of the row, unless the cause is known better.
    """
    row = TABLE[row_name]
    what = row["what"].format(**facts)
    level = level or row["level"]
    repair = repair or row["repair"]
    return Finding(row_name, level, what, line, list(details), repair)


def of_each_rank(values):
    """Return a line for each rank: what it had."""
    return [f"rank {rank}: {value}" for rank, value in enumerate(values)]


def some(names):
    """Return a list of names as text, which ends after the first of them."""
    return ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")


def name_what_follows(found):
    """Return findings, without those that follow from another: that names them."""
    kept = []
    for one in found:
        causes = [cause for cause in found if one.name in FOLLOWS.get(cause.name, ())]
        again = [other for other in kept if other.name == one.name]
        if causes and one.name in UNSAID:
            continue
        if causes:
            causes[0].details.append(f"consequence: {one.what}")
        elif not again or one.name not in SAME:
            kept.append(one)
    return kept
