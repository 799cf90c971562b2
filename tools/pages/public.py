"""Write what the pages say of public scripts, from their keys and the record."""

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
SHOWN = "evaluation", "printed", "saved"  # what a mistake affects beside the training
SETS = {
    "open": "open: rules were changed by them",
    "first": "held back, graded by the rules before anybody opened them",
    "now": "the same, by the rules as they are",
}
AT = "at a line"
HEADINGS = ["versions", "right cause", "at a line of the key", "its line is gone"]


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
        said = versions["as it is"]
        found = said["found"] or ["nothing"]
        looked = "yes" if said["exchange looked at"] else "no"
        changed = len(case["run"])
        told = "<br>".join(found).replace("|", "\\|")
        row = [f"`{name}`", place(case), f"`{case['commit'][:9]}`", case["licence"]]
        rows.append([*row, changed, told, looked])
    headings = ["name", "script", "commit", "license", "edits", "the inspector says"]
    return table("llllrll", [*headings, "asked: exchanged?"], rows)


def known():
    """Return the table of what is wrong in the scripts as they are."""
    rows = []
    for name, (case, _) in read().items():
        for fact in case.get("known", []):
            since = fact.get("since", "–")
            told = [fact["lines"], fact["affects"], fact["what"], since]
            rows.append([f"`{name}`", *told])
    return table("lllll", ["name", "line", "affects", "what", "known since"], rows)


def count():
    """Return in how many scripts something is wrong in silence, as a sentence."""
    affected = []
    for case, _ in read().values():
        affected.append({fact["affects"] for fact in case.get("known", [])})
    training = sum("training" in one for one in affected)
    silent = sum(not one.isdisjoint(["training", *SHOWN]) for one in affected)
    return (
        f"Such mistakes are not rare. Of {len(affected)} public training scripts that "
        f"many have copied, {training} have one in the training\n"
        f"itself, and {silent - training} more in what they evaluate, print or save: "
        "[which, and how you see it](beyond/own_script/PUBLIC.md)."
    )


def graded():
    """Return {set: [(script, what is graded of a version)]}."""
    found = {which: [] for which in SETS}
    for name, (case, versions) in read().items():
        for version in case.get("version", []):
            one = versions.get(version["name"], {})
            if "first" in one:
                found["first"].append((name, one["first"]))
            if "grade" in one:
                which = "now" if version.get("held_back") else "open"
                found[which].append((name, one))
    return found


def rates():
    """Return the table of how many versions got which grade, by set."""
    rows = []
    for which, pairs in graded().items():
        marks = Counter(one["grade"] for _, one in pairs)
        right = [one for _, one in pairs if one["grade"] == "right"]
        line = sum(one.get(AT, False) for one in right)
        gone = sum(AT not in one for one in right)
        rest = [marks[grade] for grade in GRADES[1:]]
        rows.append([SETS[which], len(pairs), len(right), line, gone, *rest])
    return table("lrrrrrrr", ["", *HEADINGS, *GRADES[1:]], rows)


def by_script():
    """Return the table of how many versions of each script have a right cause."""
    sets = graded().values()
    rows = []
    for name in sorted({name for pairs in sets for name, _ in pairs}):
        row = [f"`{name}`"]
        for pairs in sets:
            grades = [one["grade"] for script, one in pairs if script == name]
            row.append(f"{grades.count('right')} of {len(grades)}")
        rows.append(row)
    return table("lrrr", ["name", "open", "held back, at first", "now"], rows)


PARTS = {
    "scripts": scripts,
    "known": known,
    "count": count,
    "rates": rates,
    "by_script": by_script,
}


def public(name):
    """Return one of the parts by its name."""
    return PARTS[name]()
