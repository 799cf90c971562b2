"""Write the table of the inspector's findings: which page explains each."""

import csv
import os
from pathlib import PurePosixPath

from tools.bench.tables import table
from tools.run.stages import ROOT

RULES = ROOT / "onecurve/src/onecurve/findings.csv"
EXPLAINED = ROOT / "tools/run/explained.csv"
FOLDER = "beyond/own_script"  # of the page that has the table
PAGE = f"{FOLDER}/INSPECT.md"


def read(path):
    """Return {name: row} of a table of findings."""
    with path.open(encoding="utf-8") as file:
        return {row["name"]: row for row in csv.DictReader(file)}


def link(path):
    """Return a link to a page or an exercise, or nothing if there is none."""
    if not path:
        return ""
    page = PurePosixPath(path)
    words = page.stem.lower()
    if page.parent.name == "exercises":
        words = page.name[:2]
    elif page.name == "README.md":
        words = page.parent.name
    return f"[{words}]({os.path.relpath(path, FOLDER)})"


def explained():
    """Return the table: what the report says, and what to read and to practice."""
    rows = []
    pages = read(EXPLAINED)
    for name, rule in read(RULES).items():
        what = rule["what"].replace("{", "*").replace("}", "*")
        said = f"[{rule['level']}: {what}](../../onecurve/RULES.md#{name})"
        page, exercise = pages[name]["page"], pages[name]["exercise"]
        rows.append([said, link("" if page == PAGE else page), link(exercise)])
    return table("lll", ["it says", "read", "exercise"], rows)
