"""Write the tables of the page on public scripts, from their keys and the record."""

import json
from collections import Counter

try:
    import tomllib
except ModuleNotFoundError:  # before Python 3.11
    import tomli as tomllib

from tools.bench.tables import table
from tools.run.stages import ROOT

FOLDER = ROOT / "tests" / "judge" / "public"
GRADES = ["right", "vague", "missed", "false ok"]


def read():
    """Return {name: (case, record of its versions)} of all public scripts."""
    record = json.loads(FOLDER.with_suffix(".json").read_text())
    found = {}
    for path in sorted(FOLDER.glob("*.toml")):
        case = tomllib.loads(path.read_text())
        found[path.stem] = case, record.get(path.stem, {})
    return found


def place(case):
    """Return a script as a link to it at its commit."""
    at = f"https://github.com/{case['repository']}/blob/{case['commit']}/{case['path']}"
    return f"[{case['repository']}, `{case['path']}`]({at})"


def scripts():
    """Return the table of the scripts: which, and what the judge says of them."""
    rows = []
    for name, (case, versions) in read().items():
        said = versions.get("as it is")
        found = ["no run is kept"]
        looked = "–"
        if said:
            found = said["found"] or ["nothing"]
            looked = "yes" if said["exchange looked at"] else "no"
        changed = len(case["run"])
        told = "<br>".join(found).replace("|", "\\|")
        row = [f"`{name}`", place(case), f"`{case['commit'][:9]}`", case["licence"]]
        rows.append([*row, changed, told, looked])
    headings = ["name", "script", "commit", "license", "edits", "the judge says"]
    return table("llllrll", [*headings, "asked: exchanged?"], rows)


def known():
    """Return the table of what is wrong in the scripts as they are."""
    rows = []
    for name, (case, _) in read().items():
        for fact in case.get("known", []):
            since = fact.get("since", "–")
            rows.append([f"`{name}`", fact["lines"], fact["what"], since])
    return table("llll", ["name", "line", "what", "known since"], rows)


def rates():
    """Return the table of how many open versions of each script got which grade."""
    rows = []
    total = Counter()
    for name, (_, versions) in read().items():
        marks = Counter(one["grade"] for one in versions.values() if "grade" in one)
        total.update(marks)
        if marks:
            rows.append([f"`{name}`", *[marks[grade] for grade in GRADES]])
    rows.append(["all", *[total[grade] for grade in GRADES]])
    return table("lrrrr", ["name", *GRADES], rows)


PARTS = {"scripts": scripts, "known": known, "rates": rates}


def public(name):
    """Return one of the three tables by its name."""
    return PARTS[name]()
