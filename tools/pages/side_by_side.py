"""Write one HTML page that shows any two stages side by side, and print its path.

`python -m tools.pages.side_by_side [FILE]`, by default runs/side_by_side.html. The page needs
no network and no server: side_by_side.html beside this file, with the data in it.
"""

import difflib
import json
import re
import sys
from itertools import combinations, pairwise
from pathlib import Path

from markdown_it import MarkdownIt
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from tools.pages.blocks import LESSONS, anchor, reasons
from tools.run import diffs
from tools.run.stages import ROOT, STAGES, TARGETS, previous, refuse, script

TEMPLATE = Path(__file__).with_suffix(".html")
SIMILAR = 0.4  # two lines that share less than this are not one line that changed


def highlighted(stage):
    """Return the lines of a script as HTML, in spans of pygments' classes."""
    html = highlight(
        script(stage).read_text(), PythonLexer(), HtmlFormatter(nowrap=True)
    )
    return html.splitlines()


def changed_words(old, new):
    """Return where two versions of a line differ: two lists of [start, end] columns."""
    a, b = (re.findall(r"\w+|\s+|.", line) for line in (old, new))
    marks = [], []
    for tag, i1, i2, j1, j2 in difflib.SequenceMatcher(None, a, b).get_opcodes():
        for words, start, end, found in (a, i1, i2, marks[0]), (b, j1, j2, marks[1]):
            if tag != "equal" and start < end:
                column = len("".join(words[:start]))
                found.append([column, column + len("".join(words[start:end]))])
    return marks


def aligned(old, new):
    """Pair the lines of a replaced stretch: [i, j] where alike, [i, None], [None, j].

    The two most similar lines are a pair, and so on above and below them.
    """
    best = max(
        (difflib.SequenceMatcher(None, a.strip(), b.strip()).ratio(), -i, -j)
        for i, a in enumerate(old)
        for j, b in enumerate(new)
    ) if old and new else (0,)  # fmt: skip
    if best[0] < SIMILAR:
        return [[i, None] for i in range(len(old))] + [
            [None, j] for j in range(len(new))
        ]
    i, j = -best[1], -best[2]
    below = aligned(old[i + 1 :], new[j + 1 :])
    return [
        *aligned(old[:i], new[:j]),
        [i, j],
        *(
            [a if a is None else a + i + 1, b if b is None else b + j + 1]
            for a, b in below
        ),
    ]


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
        for i, j in aligned(old[i1:i2], new[j1:j2]):
            i, j = i if i is None else i + i1, j if j is None else j + j1
            marks = changed_words(old[i], new[j]) if None not in (i, j) else ([], [])
            found.append([i, j, *marks])
    first, last = (hunk.opcodes[n][0] == "equal" for n in (0, -1))
    return found[first : len(found) - last]


def steps(a, b, hunk):
    """Return which hunks between neighbours made a hunk between `a` and `b`.

    Those of the same section that brought its new lines, or took out its old ones: a
    list of (stage, number of the hunk in the diff that leads to it).
    """
    first, last = STAGES.index(a), STAGES.index(b)
    return [
        (stage, number)
        for stage in STAGES[first + 1 : last + 1]
        for number, step in enumerate(diffs.hunks(previous(stage), stage), start=1)
        if step.section == hunk.section and set(step.changed()) & set(hunk.changed())
    ]


def page_data():
    """Return what the page shows, ready for JSON."""
    markdown = MarkdownIt()
    table = {}  # a line of HTML -> its number: most lines are in all six scripts
    stages = [
        {
            "name": stage,
            "target": target,
            "lesson": markdown.renderInline(LESSONS[stage]),
            "lines": [
                table.setdefault(line, len(table)) for line in highlighted(stage)
            ],
        }
        for target, stage in TARGETS.items()
    ]
    explained = {
        (a, b): [markdown.render(text) for text in reasons(a, b)]
        for a, b in diffs.EXPLAINED
    }
    pairs = {}
    for a, b in combinations(STAGES, 2):
        pairs[f"{a}-{b}"] = found = []
        for number, hunk in enumerate(diffs.hunks(a, b)):
            if (a, b) in explained:
                why = [{"html": explained[a, b][number]}]
            else:
                why = [
                    {"link": f"{anchor(previous(stage), stage)}.{n}"}
                    for stage, n in steps(a, b, hunk)
                ]
            found.append(
                {
                    "section": hunk.section,
                    "at": next(
                        [i, j] for tag, i, _, j, _ in hunk.opcodes if tag != "equal"
                    ),
                    "rows": rows(a, b, hunk),
                    "why": why,
                }
            )
    return {
        "stages": stages,
        "lines": list(table),
        "pairs": pairs,
        "overview": overview(),
    }


def overview():
    """Return for each section the lines that change in it, stage by stage.

    A list of [section, [[changed lines, first hunk] or None for each stage but the
    first]].
    """
    names = list(dict.fromkeys(n for stage in STAGES for n in diffs.sections(stage)))
    cells = {name: [] for name in names}
    for a, b in pairwise(STAGES):
        for name in names:
            found = [
                (number, len(hunk.changed()))
                for number, hunk in enumerate(diffs.hunks(a, b), start=1)
                if hunk.section == name
            ]
            cells[name].append(
                [sum(count for _, count in found), found[0][0]] if found else None
            )
    return list(cells.items())


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
    print(target)
