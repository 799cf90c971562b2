"""The table of grades: the findings for each version, and how good they are.

`grades.csv` contains a row for each version of each script:

set, case, version: a group of cases, a kind of script or a public one, a version's name
held_back: whether the version was hidden while the rules were changed
first_grade, first_at_line, first_found: with the rules before any report was read
grade, at_line, found: with the current rules
exchange: for a public script, whether the gradient exchange could be checked

A finding is a rule's name, its level and its line, in the script unless it says where.
`at_line` says whether a finding has one of the key's lines, `gone` if all were deleted.
"""

import csv
from pathlib import Path

PATH = Path(__file__).with_name("grades.csv")
PUBLIC = "public"  # the set of the public scripts
EXCHANGED = "gradients are averaged across ranks"


def read():
    """Return the table as {(whether public, case, version): row}."""
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
    """Write a report's findings to a row; return whether they changed.

    `lines` are the key's. A change clears the grade, which takes a reader.
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
