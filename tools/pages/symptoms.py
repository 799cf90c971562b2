"""The page of symptoms: the bugs described on all stages' pages, by what you see.

An entry of a chapter `## What goes wrong` is `- <a id="NAME"></a>` and, on the next
line, `**What you see.** The cause. The fix.` NAME must be unique, since links use it.
An entry may link to an exercise in which a learner finds that cause.
"""

import re

from tools.bench.tables import table
from tools.run.stages import EVERY, ROOT, folder

CHAPTER = re.compile(r"^## What goes wrong\n(.*?)(?=^## |\Z)", re.DOTALL | re.MULTILINE)
ENTRY = re.compile(
    r"""^- <a id="([^"]+)"></a>\n  \*\*(.+?)\*\*(.*?)(?=^- |\Z)""",
    re.DOTALL | re.MULTILINE,
)
EXERCISE = re.compile(r"\]\([./]*exercises/(0?(\d+)_\w+\.md)\)")
COLUMNS = ["what you see", "the usual cause", "how to fix it"]
# The page's groups, by heading. A symptom goes into the first group that fits.
GROUPS = {
    "It prints an error": lambda seen: seen.startswith("`"),
    "It hangs": lambda seen: re.search(r"\bhangs?\b", seen),
    "It runs, but something is wrong": lambda seen: True,
}


def first_sentence(text):
    """Return the first sentence of a Markdown text, without links."""
    text = re.sub(r"\[\^\w+\]", "", text)  # footnotes
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)  # links become their text
    text = " ".join(text.split())
    return text.partition(". ")[0].rstrip(".:") + "."


def symptoms(page):
    """Return a Markdown row of COLUMNS for each symptom on a page, a path."""
    stage = page.parent.name
    number = stage.partition("_")[0].lstrip("0")
    found = []
    for chapter in CHAPTER.findall(page.read_text()):
        for name, seen, rest in ENTRY.findall(chapter):
            seen = " ".join(seen.split())
            fix = f"[stage {number}](../{page.relative_to(ROOT)}#{name})"
            exercise = EXERCISE.search(rest)
            if exercise:
                fix += f"<br>[exercise {exercise[2]}](../exercises/{exercise[1]})"
            found.append([seen.rstrip("."), first_sentence(rest), fix])
    return found


def symptoms_by_kind():
    """Return sorted tables of all symptoms, each below its heading."""
    groups = {heading: [] for heading in GROUPS}
    for stage in EVERY.values():
        for page in sorted(folder(stage).glob("*.md")):
            for row in symptoms(page):
                heading = next(name for name, fits in GROUPS.items() if fits(row[0]))
                groups[heading].append(row)
    parts = []
    for heading, rows in groups.items():
        rows.sort(key=lambda row: row[0].strip("`").lower())
        parts.append(f"## {heading}\n\n{table('lll', COLUMNS, rows)}")
    return "\n\n".join(parts)
