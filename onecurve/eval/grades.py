"""The table of grades: what was found of each version, and what that was worth.

`grades.csv` has a row for each version of each script:

set, case, version: a group of cases, a kind of script or a public one, a version's name
held_back: whether the version was kept from whoever changed the rules
first_grade, first_at_line, first_found: by the rules before anyone had read a report
grade, at_line, found: by the rules as they are
exchange: of a public script, whether the exchange of gradients could be checked

A finding is a rule's name, its level and its line, which is the script's unless another
file is named. `at_line` says whether a finding has a line of the key, or `gone` if the
key's lines were deleted.
"""

import csv
from pathlib import Path

PATH = Path(__file__).with_name("grades.csv")
PUBLIC = "public"  # the set of the public scripts
EXCHANGED = "gradients are averaged across ranks"


def read():
    """Return {(whether public, case, version): row} of the table."""
    with PATH.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return {(row["set"] == PUBLIC, row["case"], row["version"]): row for row in rows}


def write(table):
    """Write the table that `read` returned."""
    rows = list(table.values())
    with PATH.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def note(row, report, script, lines):
    """Note in a row what a report found. Returns whether it was something else before.

    `lines` are the key's. Then the grade goes: someone reads the report, and grades it.
    """
    findings = report["findings"]
    found = []
    for one in findings:
        line = (one["line"] or "").removeprefix(f"{script.name}:")
        found.append(f"{one['name']} {one['level']} {line}".strip())
    if row["set"] == PUBLIC:
        wrong = any(one["name"] == "exchange" for one in findings)
        checked = wrong or EXCHANGED in "\n".join(report["compared"])
        row["exchange"] = "yes" if checked else "no"
    if row["found"] == "; ".join(found):
        return False
    at_line = any(one["line"] in lines for one in findings)
    row["at_line"] = "gone" if not lines else "yes" if at_line else "no"
    row.update(found="; ".join(found), grade="")
    return True
