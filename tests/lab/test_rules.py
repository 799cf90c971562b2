"""Promise: every rule of every task is checked, and rules.csv names the check."""

import csv
import re

from tools.lab.exercise import FILES, along_the_path

ENDS = "end"  # every check starts with this
OF_A_RUN = {"processes", "fake"}


def is_checked(exercise, check):
    """Return whether an exercise's files use the check named in rules.csv."""
    name = check.removeprefix("check.py:")
    path = exercise.folder / "check.py"
    code = path.read_text() if path.exists() else ""
    if check != name:
        return f"def {name}(" in code
    used = {ENDS}
    for run in exercise.wanted, *exercise.runs:
        used |= {*run, *run.get("expect", "").split()}
    return name in used or name in OF_A_RUN and name in code


def test_each_rule_has_a_check():
    with open(FILES / "rules.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    for exercise in along_the_path():
        task = " ".join(exercise.chapter("Your task").split())
        task = re.sub(r"\*\*|(?<= )- ", "", task)
        rules = [row for row in rows if row["exercise"] == exercise.number]
        assert rules, exercise.name
        for row in rules:
            assert row["rule"] in task, row
            assert is_checked(exercise, row["check"]), row
