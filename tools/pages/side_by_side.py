"""Write one HTML page that shows any two stages side by side, and print a link to it.

`python -m tools.pages.side_by_side [FILE]`, by default runs/side_by_side.html. The page
needs no network and no server: side_by_side.html beside this file, with the data in it.
"""

import json
import sys
from itertools import combinations
from pathlib import Path

from markdown_it import MarkdownIt
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from tools.pages import words
from tools.pages.blocks import LESSONS, reasons
from tools.run import diffs
from tools.run.stages import EVERY, ROOT, previous, refuse, script

TEMPLATE = Path(__file__).with_suffix(".html")


def highlighted(stage):
    """Return the lines of a script as HTML, in spans of pygments' classes."""
    text = script(stage).read_text()
    return highlight(text, PythonLexer(), HtmlFormatter(nowrap=True)).splitlines()


def rows(a, b, hunk):
    """Return the changed rows of a hunk: [line of a, line of b, marks in each].

    Lines count from 0; None where a side has none. A row without marks did not change,
    or is new or gone as a whole.
    """
    old = diffs.lines(a)
    new = diffs.lines(b)
    found = []
    for tag, i1, i2, j1, j2 in hunk.opcodes:
        if tag == "equal":
            found += [[i1 + n, j1 + n, 0, 0] for n in range(i2 - i1)]
            continue
        for i, j in words.aligned(old[i1:i2], new[j1:j2], i1, j1):
            marks = [], []
            if i is not None and j is not None:
                marks = words.changed_words(old[i], new[j])
            found.append([i, j, *marks])
    if hunk.opcodes[0][0] == "equal":
        del found[0]
    if hunk.opcodes[-1][0] == "equal":
        del found[-1]
    return found


def steps_to(stage):
    """Return the lessons (from, to) on the way to a stage, the last one first."""
    found = []
    while stage:
        found.append((previous(stage), stage))
        stage = previous(stage)
    return found


def walk(a, b):
    """Return the steps from `a` to `b` in the tree of lessons, {(from, to): undone}.

    Up from `a` to the stage that both build on, which undoes lessons, then down to `b`.
    """
    to_a = steps_to(a)
    to_b = steps_to(b)
    undone = {step: True for step in to_a if step not in to_b}
    done = {step: False for step in reversed(to_b) if step not in to_a}
    return undone | done


def changes(hunk, undone=False):
    """Return the lines that a hunk removes or adds, or the reverse of that: a set."""
    signs = str.maketrans("+-", "-+") if undone else {}
    lines = [line for line in hunk.changed() if line[1:].strip()]
    return {line[0].translate(signs) + line[1:] for line in lines}


def shares_section(hunk, other):
    """Return whether two hunks change a section of the same name."""
    return bool(set(hunk.section.split(" and ")) & set(other.section.split(" and ")))


def lesson_hunks(a, b):
    """Return all hunks of the lessons on the way from `a` to `b`: (origin, hunk).

    An origin is {"of": key of the pair, "number": from 1, "undone": whether}.
    """
    found = []
    for pair, undone in walk(a, b).items():
        for number, hunk in enumerate(diffs.hunks(*pair), start=1):
            origin = {"of": "-".join(pair), "number": number, "undone": undone}
            found.append((origin, hunk))
    return found


def origins(hunk, lessons):
    """Return the origins of a hunk, of those that `lesson_hunks` found.

    They are of the same section, and added its new lines or removed its old ones.
    """
    found = []
    for origin, step in lessons:
        shared = changes(step, origin["undone"]) & changes(hunk)
        if shared and shares_section(step, hunk):
            found.append(origin)
    return found


def explained(reason):
    """Return a reason as HTML: {"title", "html"}."""
    title = MarkdownIt().renderInline(reason.title)
    return {"title": title, "html": MarkdownIt().render(reason.text)}


def hunks(a, b):
    """Return the hunks of the diff from `a` to `b`, ready for JSON.

    `at` is where the changed lines begin in both, counted from 0. `why` is the reason,
    its title and text as HTML, where the pages explain the diff, else the hunks of
    lessons that have one.
    """
    found = diffs.hunks(a, b)
    if (a, b) in diffs.EXPLAINED:
        why = [[explained(reason)] for reason in reasons(a, b)]
    else:
        lessons = lesson_hunks(a, b)
        why = [origins(hunk, lessons) for hunk in found]
    shown = []
    for hunk, reason in zip(found, why, strict=True):
        at = next([i, j] for tag, i, _, j, _ in hunk.opcodes if tag != "equal")
        one = {"section": hunk.section, "at": at, "rows": rows(a, b, hunk)}
        shown.append(one | {"why": reason})
    return shown


def all_sections(stages):
    """Return the sections of all these scripts, each script's in its own order."""
    found = []
    for stage in stages:
        place = 0
        for section in dict.fromkeys(diffs.sections(stage)):
            if section not in found:
                found.insert(place, section)
            place = found.index(section) + 1
    return found


def page_data():
    """Return what the page shows, ready for JSON."""
    numbers = {}  # a line of HTML -> its number: most lines are in many scripts
    names = list(EVERY.values())
    stages = []
    for target, stage in EVERY.items():
        lines = [numbers.setdefault(line, len(numbers)) for line in highlighted(stage)]
        stages.append(
            {
                "name": stage,
                "target": target,
                "base": names.index(previous(stage)) if previous(stage) else None,
                "lesson": MarkdownIt().renderInline(LESSONS[stage]),
                "lines": lines,
            }
        )
    return {
        "stages": stages,
        "lines": list(numbers),
        "pairs": {f"{a}-{b}": hunks(a, b) for a, b in combinations(names, 2)},
        "sections": all_sections(names),
    }


def write(path):
    """Write the page to `path`."""
    data = json.dumps(page_data(), separators=(",", ":")).replace("</", "<\\/")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(TEMPLATE.read_text().replace('"the data"', data))


if __name__ == "__main__":
    if len(sys.argv) > 2:
        refuse("name one file to write: python -m tools.pages.side_by_side FILE")
    target = Path(sys.argv[1] if sys.argv[1:] else ROOT / "runs" / "side_by_side.html")
    try:
        write(target)
    except OSError as error:
        refuse(f"cannot write {target}: {error.strerror}")
    print(target.resolve().as_uri())
