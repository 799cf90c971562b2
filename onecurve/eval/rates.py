"""Print how much of its cases the judge names, by what is graded: a Markdown table.

The cases of graded.json are graded again whenever a rule changes. The others were
graded once, by the rules as they were before anybody had seen what is said of them.
Where one has "today", that is what is said since rules were changed for its sake: a row
of its own.
"""

import json
import re
from collections import Counter
from pathlib import Path

from read_keys import read

FOLDER = Path(__file__).parent
GRADES = ["right", "vague", "missed", "false ok"]  # of a version with a mistake
SETS = {  # what is graded, which of it, and what the table calls it
    "graded.json": {
        False: "six kinds of script, the mistakes by which rules were made",
        True: "the same six, mistakes that were looked at last",
    },
    "graded_new.json": {True: "five kinds that came after the rules, graded once"},
    "graded_unseen.json": {True: "unseen: five more kinds, later still, graded once"},
    "graded_blind.json": {True: "unseen: six more, after all these, graded once"},
    "graded_more.json": {True: "unseen: six more of other kinds, graded once"},
    "graded_last.json": {True: "unseen: six more, later still, graded once"},
    "graded_latest.json": {True: "unseen: six more, the latest, graded once"},
    "graded_newest.json": {
        False: "unseen: six more with ten mistakes each, graded once",
        True: "the same six, mistakes that were looked at last, graded once",
    },
}
TODAY = "today"
HEADINGS = ["", "versions", "right cause", "at a line of the key", *GRADES[1:]]


def graded(name):
    """Return what a file has of the cases, {case: {mistake: facts}}."""
    return json.loads((FOLDER / name).read_text())


def at_its_line(version, found):
    """Does one of the findings point to a line of the version's key?"""
    script = version.script().splitlines()
    for number in re.findall(r"train\.py:(\d+)", "\n".join(found)):
        line = script[int(number) - 1]
        if any(piece in line for piece in version.lines):
            return True
    return False


def by_rules_of_today(grades):
    """Return what is said of the cases today, as `graded` does; {} if nobody looked."""
    again = {}
    for case, facts in grades.items():
        again[case] = {name: one[TODAY] for name, one in facts.items() if TODAY in one}
    return again if all(again.values()) else {}


def counts(grades, held_back):
    """Return how often each grade was given, and "line" among the right ones."""
    counted = Counter()
    for case, facts in grades.items():
        for version in read(case):
            if version.held_back == held_back:
                one = facts[version.mistake]
                counted[one["grade"]] += 1
                right = one["grade"] == "right"
                counted["line"] += right and at_its_line(version, one["found"])
    return counted


def row(grades, held_back):
    """Return the numbers of a row."""
    counted = counts(grades, held_back)
    versions = sum(counted[grade] for grade in GRADES)
    right = [counted["right"], counted["line"]]
    return [versions, *right, *(counted[grade] for grade in GRADES[1:])]


def rows():
    """Return the table's rows, lists of text and numbers."""
    found = []
    for name, parts in SETS.items():
        for held_back, title in parts.items():
            found.append([title, *row(graded(name), held_back)])
            again = by_rules_of_today(graded(name))
            if again:
                title = "the same, by the rules as they are"
                found.append([title, *row(again, held_back)])
    return found


if __name__ == "__main__":
    lines = [HEADINGS, ["---", *["---:"] * (len(HEADINGS) - 1)], *rows()]
    for line in lines:
        print("|", " | ".join(str(cell) for cell in line), "|")
