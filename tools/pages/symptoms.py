"""The page of symptoms: the bugs described on all stages' pages, by what you see.

An entry of a chapter `## What goes wrong` is `- <a id="NAME"></a>` and, on the next
line, `**What you see.** The cause. The fix.` NAME must be unique, since links use it.
An entry may link to an exercise in which a learner finds that cause.
"""

import re

from tools.bench.tables import table
from tools.run.stages import EVERY, ROOT, folder

CHAPTER = re.compile(r"^## What goes wrong\n(.*?)(?=^## |\Z)", re.DOTALL | re.MULTILINE)
ENTRY = re.compile(r'(?ms)^- <a id="([^"]+)"></a>\n  \*\*(.+?)\*\*(.*?)(?=^- |\Z)')
EXERCISE = re.compile(r"\]\([./]*exercises/(0?(\d+)_\w+\.md)\)")
COLUMNS = ["what you see", "the usual cause", "how to fix it"]
# The page's groups: a symptom goes into the first one whose pattern it contains.
GROUPS = {
    "## It prints an error": "^`",
    "## It hangs": r"\bhangs?\b",
    "## It runs, but something is wrong\n\n### Speed and memory": "memory|slower|busy|"
    "impossibly|several times as|faster, or|than the CPU|weights fit|gain little",
    "### Resumed runs and files": "resume|checkpoint|scratch|Loaded|file is|folder",
    "### Scores and counts": "accuracy|score|metric|Recall|predictions|logged|printed|"
    r"reduced|per second|count |\brows",
    "### Losses and curves": "loss|curve|learns|gradients? (of|norm|is|are wrong)",
    "### Data and weights": "",
}


def first_sentence(text):
    """Return the first sentence of a Markdown text, without links."""
    text = re.sub(r"\[\^\w+\]", "", text)  # footnotes
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)  # links become their text
    text = " ".join(text.split())
    return text.partition(". ")[0].rstrip(".:") + "."


def symptoms(page):
    """Return a Markdown row of COLUMNS for each symptom on a page, a path."""
    number, topic = page.parent.name.replace("_", " ").lstrip("0").split(" ", 1)
    if page.stem in ("HANGS", "CLUSTERS"):
        topic = page.stem.lower()
    topic = re.sub(r"\b([cg]pu|d?dp|fsdp|moe)\b", lambda word: word[0].upper(), topic)
    found = []
    for chapter in CHAPTER.findall(page.read_text()):
        for name, seen, rest in ENTRY.findall(chapter):
            seen = " ".join(seen.split())
            fix = f"[stage {number}: {topic}](../{page.relative_to(ROOT)}#{name})"
            exercise = EXERCISE.search(rest)
            if exercise:
                fix += f"<br>[exercise {exercise[2]}](../exercises/{exercise[1]})"
            found.append([seen.rstrip("."), first_sentence(rest), fix])
    return found


def with_letters(rows):
    """Mark each letter's first row and return links to these rows."""
    links = {}
    for row in rows:
        letter = re.search("[a-z]", row[0].lower())[0]
        if letter not in links:
            row[0] += f' <a id="error-{letter}"></a>'
            links[letter] = f'<a href="#error-{letter}">{letter.upper()}</a>'
    return " ".join(links.values())


def symptoms_by_kind():
    """Return links to all symptoms' sorted tables, and these, each with a heading."""
    groups = {heading: [] for heading in GROUPS}
    for stage in EVERY.values():
        for page in sorted(folder(stage).glob("*.md")):
            for row in symptoms(page):
                found = (one for one, seen in GROUPS.items() if re.search(seen, row[0]))
                groups[next(found)].append(row)
    parts, links = [], []
    for heading, rows in groups.items():
        rows.sort(key=lambda row: re.sub("^[^a-z]+", "", row[0].lower()))
        letters = [with_letters(rows)] if "an error" in heading else []
        parts += [heading, *letters, table("lll", COLUMNS, rows)]
        title = heading.rpartition("# ")[2]
        links.append(f"[{title}](#{title.lower().replace(' ', '-')})")
    return "\n\n".join([" · ".join(links), *parts])
