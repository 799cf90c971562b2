"""Write the generated parts of README.md, RULES.md and PUBLIC.md.

    python eval/pages.py [--check] [--run]

A part is between `<!-- generated: NAME -->` and `<!-- end -->`. NAME is a key of PARTS,
or of RUNS, which are reports that only `--run` writes. `--check` writes nothing, names
each stale part and exits with 1 if there is one.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import grades
import public
import rates
from trying import SOURCE

sys.path.insert(0, str(SOURCE))
from onecurve.rules import RULES

HOUSE = Path(__file__).resolve().parents[1]
PAGES = "README.md", "RULES.md", "PUBLIC.md"
PART = re.compile(r"<!-- generated: (\w+) -->\n(.*?)<!-- end -->", re.DOTALL)
VARIES = re.compile(r"\d+\.\d s$|\d\.\d{4,}", re.MULTILINE)  # from run to run
SHOWN = "evaluation", "printed", "saved"  # what a bug may affect besides training
WRONG = "return ddp_model(inputs)", "return model(inputs)"  # an edit of right.py


def rules():
    """Return a list item for each rule: its text, meaning and fix."""
    lines = []
    for name, rule in RULES.items():
        what = rule.message.replace("{", "*").replace("}", "*")
        name = f'<a id="{name}"></a>`{name}`'
        text = f"- {name} {rule.level} **{what}.** {rule.means}"
        lines.append(wrapped(f"{text} *Fix:* {rule.fix}." if rule.fix else text))
    return "\n".join(lines)


def wrapped(text):
    """Return a list item with its lines wrapped, except inside links."""
    whole = {"break_long_words": False, "break_on_hyphens": False}
    return textwrap.fill(text, 120, subsequent_indent="  ", **whole)


def scripts():
    """Return the table of the public scripts and the findings in them."""
    table = grades.read()
    rows = []
    for name, case in public_cases().items():
        row = table[True, name, public.AS_IT_IS]
        at = f"{case['repository']}/blob/{case['commit']}/{case['path']}"
        link = f"[{case['repository']}, `{case['path']}`](https://github.com/{at})"
        facts = [f"`{name}`", link, f"`{case['commit'][:9]}`", case["licence"]]
        found = linked(row["found"]) or "nothing"
        rows.append([*facts, len(case["run"]), found, row["exchange"]])
    headings = ["name", "script", "commit", "license", "edits", "the inspector finds"]
    return rates.table("llllrll", [*headings, "exchange checked"], rows)


def linked(found):
    """Return findings of grades.csv as links to their rules, one per line."""
    link = re.compile(r"(?:^|; )(\w+) (ERROR|SLOW|LOOK)")
    return link.sub(r"<br>\2 [\1](RULES.md#\1)", found).removeprefix("<br>")


def public_cases():
    """Return {name: content of its file} for the public scripts."""
    names = sorted(path.stem for path in public.FOLDER.glob("*.toml"))
    return {name: public.read(name)[0] for name in names}


def known():
    """Return the table of the public scripts' bugs."""
    rows = []
    for name, case in public_cases().items():
        for fact in case.get("known", []):
            since = fact.get("since", "–")
            facts = [fact["lines"], fact["affects"], fact["what"], since]
            rows.append([f"`{name}`", *facts])
    headings = ["name", "line", "affects", "what", "known since"]
    return rates.table("lllll", headings, rows)


def count():
    """Return a sentence on how many public scripts have a bug."""
    affected = []
    for case in public_cases().values():
        affected.append({fact["affects"] for fact in case.get("known", [])})
    training = sum("training" in one for one in affected)
    silent = sum(not one.isdisjoint(["training", *SHOWN]) for one in affected)
    return (
        f"Of {len(affected)} scripts, {training} have a bug in the training itself, "
        f"and {silent - training} more in what they evaluate, print or save."
    )


def report(text):
    """Return the inspector's output for a script as a Markdown block."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "train.py").write_text(text)
        words = [sys.executable, "-m", "onecurve", "train.py"]
        env = {**os.environ, "PYTHONPATH": str(SOURCE)}
        options = {"cwd": folder, "env": env, "capture_output": True, "text": True}
        run = subprocess.run(words, **options)
    return f"```console\n$ onecurve train.py\n{run.stdout}```"


def right():
    """Return the report on a correct script."""
    return report((HOUSE / "tests/right.py").read_text())


def wrong():
    """Return an edit of that script and the report on the result."""
    old, new = WRONG
    text = (HOUSE / "tests/right.py").read_text()
    diff = f"```diff\n-    {old}\n+    {new}\n```"
    return f"{diff}\n\n{report(text.replace(old, new))}"


PARTS = {
    "rules": rules,
    "rates": rates.cases,
    "scripts": scripts,
    "known": known,
    "count": count,
    "public_rates": rates.public,
}
RUNS = {"right": right, "wrong": wrong}


def update(page, parts, check):
    """Rewrite a page's stale parts, except in a check. Returns their names."""
    text = (HOUSE / page).read_text()
    stale = []
    for part in PART.finditer(text):
        name, old = part.groups()
        if name not in {**PARTS, **RUNS}:
            sys.exit(f"{page}: unknown part {name!r}")
        if name in parts:
            new = f"{parts[name]()}\n"
            if VARIES.sub("#", old) != VARIES.sub("#", new):
                stale.append(name)
                fresh = f"<!-- generated: {name} -->\n{new}<!-- end -->"
                text = text.replace(part[0], fresh)
    if stale and not check:
        (HOUSE / page).write_text(text)
    return stale


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--run", action="store_true")
    args = parser.parse_args()
    parts = {**PARTS, **(RUNS if args.run else {})}
    status = 0
    for page in PAGES:
        for name in update(page, parts, args.check):
            print(f"{page}: {name} was stale")
            status = int(args.check)
    sys.exit(status)


if __name__ == "__main__":
    main()
