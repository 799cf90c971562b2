"""The page of symptoms: what goes wrong on all stages' pages, by what you see.

An entry of a chapter `## What goes wrong` is `- **What you see.** The cause. The fix.`
It may link to an exercise in which a learner finds that cause.
"""

import re
from typing import NamedTuple

from tools.bench.tables import table
from tools.run.stages import EVERY, ROOT, folder

CHAPTER = re.compile(r"^## What goes wrong\n(.*?)(?=^## |\Z)", re.DOTALL | re.MULTILINE)
ENTRY = re.compile(r"^- \*\*(.+?)\*\*(.*?)(?=^- \*\*|\Z)", re.DOTALL | re.MULTILINE)
EXERCISE = re.compile(r"\]\([./]*exercises/(0?(\d+)_\w+\.md)\)")
# The groups of the page, by heading: a symptom is in the first one that it fits.
GROUPS = {
    "It prints an error": lambda seen: seen.startswith("`"),
    "It hangs": lambda seen: re.search(r"\bhangs?\b", seen),
    "It runs, but something is wrong": lambda seen: True,
}


class Symptom(NamedTuple):
    """An entry of a chapter on what goes wrong."""

    seen: str  # Markdown, as the two below
    cause: str  # the first sentence that follows, without links
    fix: str  # a link to the chapter
    exercise: str  # a link, or –


def first_sentence(text):
    """Return the first whole sentence after what you see, without links."""
    text = re.sub(r"\[\^\w+\]", "", text)  # footnotes
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)  # links keep their names
    text = " ".join(text.split())
    before, _, rest = text.partition(". ")
    if text[0] in ".,:;" or text[0].islower():  # the end of what you see
        before, _, rest = rest.partition(". ")
    return before.strip().rstrip(".:") + "."


def symptoms(page):
    """Return the Symptoms of a page, a path."""
    stage = page.parent.name
    address = f"{page.relative_to(ROOT)}#what-goes-wrong"
    number = stage.partition("_")[0].lstrip("0")
    found = []
    for chapter in CHAPTER.findall(page.read_text()):
        for seen, rest in ENTRY.findall(chapter):
            seen = " ".join(seen.split()).rstrip(".")
            exercise = EXERCISE.search(rest)
            practice = "–"
            if exercise:
                practice = f"[{exercise[2]}](exercises/{exercise[1]})"
            fix = f"[stage {number}]({address})"
            found.append(Symptom(seen, first_sentence(rest), fix, practice))
    return found


def every_symptom():
    """Return the Symptoms of all pages of the stages, in the order of the stages."""
    found = []
    for stage in EVERY.values():
        for page in sorted(folder(stage).glob("*.md")):
            found += symptoms(page)
    return found


def symptoms_by_kind():
    """Return the tables of all symptoms, a heading before each. Errors are sorted."""
    groups = {heading: [] for heading in GROUPS}
    for symptom in every_symptom():
        heading = next(name for name, fits in GROUPS.items() if fits(symptom.seen))
        groups[heading].append(symptom)
    parts = []
    for heading, found in groups.items():
        found.sort(key=lambda symptom: symptom.seen.strip("`").lower())
        rows = [[one.seen, one.cause, one.fix, one.exercise] for one in found]
        columns = ["what you see", "the usual cause", "how to fix it", "exercise"]
        parts.append(f"## {heading}\n\n{table('lllr', columns, rows)}")
    return "\n\n".join(parts)
