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

from tools.pages.blocks import LESSONS, base, reasons
from tools.run import diffs
from tools.run.stages import EVERY, ROOT, refuse, script

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
    old, new = diffs.lines(a), diffs.lines(b)
    found = []
    for tag, i1, i2, j1, j2 in hunk.opcodes:
        if tag == "equal":
            found += [[i1 + n, j1 + n, 0, 0] for n in range(i2 - i1)]
            continue
        for i, j in diffs.aligned(old[i1:i2], new[j1:j2], i1, j1):
            marks = (
                diffs.changed_words(old[i], new[j]) if None not in (i, j) else ([], [])
            )
            found.append([i, j, *marks])
    first, last = (hunk.opcodes[n][0] == "equal" for n in (0, -1))
    return found[first : len(found) - last]


def walk(a, b):
    """Return the steps from `a` to `b` in the tree of lessons, {(from, to): undone}.

    Up from `a` to where the two meet, undoing those lessons, then down to `b`.
    """
    up, down = [], []
    for stage, found in (a, up), (b, down):
        while stage:
            found.append((base(stage), stage))
            stage = base(stage)
    undone = [step for step in up if step not in down]
    done = [step for step in reversed(down) if step not in up]
    return dict.fromkeys(undone, True) | dict.fromkeys(done, False)


def origins(a, b, found):
    """Return for each hunk from `a` to `b` the hunks of lessons that it is made of.

    Those of the same section that brought its new lines, or took out its old ones: a
    list of {"of": key of the pair, "number": from 1, "undone": whether}.
    """

    def changes(hunk, undone=False):
        signs = str.maketrans("+-", "-+") if undone else {}
        return {line[0].translate(signs) + line[1:]
                for line in hunk.changed() if line[1:].strip()}  # fmt: skip

    steps = [
        ({"of": "-".join(pair), "number": number, "undone": undone}, step, undone)
        for pair, undone in walk(a, b).items()
        for number, step in enumerate(diffs.hunks(*pair), start=1)
    ]
    return [
        [origin for origin, step, undone in steps
         if set(step.section.split(" and ")) & set(hunk.section.split(" and "))
         and changes(step, undone) & changes(hunk)]
        for hunk in found
    ]  # fmt: skip


def hunks(a, b):
    """Return the hunks of the diff from `a` to `b`, ready for JSON.

    `at` is where the changed lines begin in both, counted from 0. `why` is the reason
    as HTML where the pages explain the diff, else the hunks of lessons that have one.
    """
    found = diffs.hunks(a, b)
    if (a, b) in diffs.EXPLAINED:
        why = [[{"html": MarkdownIt().render(text)}] for text in reasons(a, b)]
    else:
        why = origins(a, b, found)
    return [
        {
            "section": hunk.section,
            "at": next([i, j] for tag, i, _, j, _ in hunk.opcodes if tag != "equal"),
            "rows": rows(a, b, hunk),
            "why": reason,
        }
        for hunk, reason in zip(found, why, strict=True)
    ]


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
    stages = [
        {
            "name": stage,
            "target": target,
            "base": names.index(base(stage)) if base(stage) else None,
            "lesson": MarkdownIt().renderInline(LESSONS[stage]),
            "lines": [numbers.setdefault(x, len(numbers)) for x in highlighted(stage)],
        }
        for target, stage in EVERY.items()
    ]
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
