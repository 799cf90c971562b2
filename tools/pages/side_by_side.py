"""Write one HTML page that shows any two stages side by side, and print a link to it.

`python -m tools.pages.side_by_side` writes runs/side_by_side.html. The page needs no
network and no server: it is side_by_side.html beside this file, with the data in it.
"""

import json
from itertools import combinations
from pathlib import Path

from markdown_it import MarkdownIt
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from tools.pages.reasons import LESSONS, reasons
from tools.run import diffs, words
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


def lessons_to(stage):
    """Return the lessons (from, to) on the way to a stage, the last one first."""
    found = []
    while previous(stage):
        found.append((previous(stage), stage))
        stage = previous(stage)
    return found


def lessons_between(a, b):
    """Return the lessons on the way from `a` to `b`: {(from, to): whether undone}.

    Up from `a` to the stage that both build on, which undoes lessons, then down to `b`.
    """
    to_a = lessons_to(a)
    to_b = lessons_to(b)
    undone = [lesson for lesson in to_a if lesson not in to_b]
    done = [lesson for lesson in reversed(to_b) if lesson not in to_a]
    return dict.fromkeys(undone, True) | dict.fromkeys(done, False)


def changes(hunk, undone=False):
    """Return the lines that a hunk removes or adds, or the reverse of that: a set."""
    signs = str.maketrans("+-", "-+") if undone else {}
    lines = [line for line in hunk.changed() if line[1:].strip()]
    return {line[0].translate(signs) + line[1:] for line in lines}


def lesson_hunks(a, b):
    """Return all hunks of the lessons on the way from `a` to `b`: (origin, hunk).

    An origin is {"of": key of the pair, "number": from 1, "undone": whether}.
    """
    found = []
    for lesson, undone in lessons_between(a, b).items():
        for number, hunk in enumerate(diffs.hunks(*lesson), start=1):
            origin = {"of": "-".join(lesson), "number": number, "undone": undone}
            found.append((origin, hunk))
    return found


def origins(hunk, steps):
    """Return the origins of a hunk, of those that `lesson_hunks` found.

    They changed one of its lines as it does, in a section of the same name.
    """
    found = []
    sections = set(hunk.section.split(" and "))
    for origin, step in steps:
        shared = changes(step, origin["undone"]) & changes(hunk)
        if shared and sections & set(step.section.split(" and ")):
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
    if (a, b) in diffs.EXPLAINED:
        whys = [[explained(reason)] for reason in reasons(a, b)]
    else:
        steps = lesson_hunks(a, b)
        whys = [origins(hunk, steps) for hunk in diffs.hunks(a, b)]
    shown = []
    for hunk, why in zip(diffs.hunks(a, b), whys, strict=True):
        changed = [opcode for opcode in hunk.opcodes if opcode[0] != "equal"]
        _, i, _, j, _ = changed[0]
        one = {"section": hunk.section, "at": [i, j], "rows": rows(a, b, hunk)}
        shown.append(one | {"why": why})
    return shown


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
        "sections": list(dict.fromkeys(diffs.sections(names[0]))),
    }


def write(path):
    """Write the page to `path`."""
    data = json.dumps(page_data(), separators=(",", ":")).replace("</", "<\\/")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(TEMPLATE.read_text().replace('"the data"', data))


if __name__ == "__main__":
    target = ROOT / "runs" / "side_by_side.html"
    try:
        write(target)
    except OSError as error:
        refuse(f"cannot write {target}: {error.strerror}")
    print(target.as_uri())
