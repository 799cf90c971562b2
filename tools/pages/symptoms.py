"""The page of symptoms: what goes wrong on all stages' pages, by what you see.

An entry of a chapter `## What goes wrong` is `- **What you see.** The cause. The fix.`
It may link to an exercise in which a learner finds that cause.
"""

import re

from tools.bench.tables import table
from tools.run.stages import EVERY, ROOT, folder

CHAPTER = re.compile(r"^## What goes wrong\n(.*?)(?=^## |\Z)", re.DOTALL | re.MULTILINE)
ENTRY = re.compile(r"^- \*\*(.+?)\*\*(.*?)(?=^- \*\*|\Z)", re.DOTALL | re.MULTILINE)
EXERCISE = re.compile(r"\]\([./]*exercises/(0?(\d+)_\w+\.md)\)")
# What you see goes on behind its bold letters where the text begins so.
GOES_ON = re.compile(r"[,;:.]|(when|while|from|on|in|if|or|although) ")
COLUMNS = ["what you see", "the usual cause", "how to fix it", "exercise"]
# The groups of the page, by heading: a symptom is in the first one that it fits.
GROUPS = {
    "It prints an error": lambda seen: seen.startswith("`"),
    "It hangs": lambda seen: re.search(r"\bhangs?\b", seen),
    "It runs, but something is wrong": lambda seen: True,
}


def first_sentence(text):
    """Return the first whole sentence after what you see, without links."""
    text = re.sub(r"\[\^\w+\]", "", text)  # footnotes
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)  # links keep their names
    text = " ".join(text.split())
    first, _, rest = text.partition(". ")
    if GOES_ON.match(text):
        first = rest.partition(". ")[0]
    return first.strip().rstrip(".:") + "."


def symptoms(page):
    """Return a row of COLUMNS, in Markdown, for each symptom of a page, a path."""
    stage = page.parent.name
    number = stage.partition("_")[0].lstrip("0")
    fix = f"[stage {number}]({page.relative_to(ROOT)}#what-goes-wrong)"
    found = []
    for chapter in CHAPTER.findall(page.read_text()):
        for seen, rest in ENTRY.findall(chapter):
            seen = " ".join(seen.split()).rstrip(".")
            exercise = EXERCISE.search(rest)
            practice = "–"
            if exercise:
                practice = f"[{exercise[2]}](exercises/{exercise[1]})"
            found.append([seen, first_sentence(rest), fix, practice])
    return found


def symptoms_by_kind():
    """Return the tables of all symptoms, a heading before each. Errors are sorted."""
    groups = {heading: [] for heading in GROUPS}
    for stage in EVERY.values():
        for page in sorted(folder(stage).glob("*.md")):
            for row in symptoms(page):
                heading = next(name for name, fits in GROUPS.items() if fits(row[0]))
                groups[heading].append(row)
    parts = []
    for heading, rows in groups.items():
        rows.sort(key=lambda row: row[0].strip("`").lower())
        parts.append(f"## {heading}\n\n{table('lllr', COLUMNS, rows)}")
    return "\n\n".join(parts)
