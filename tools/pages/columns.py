"""The lines of a diff in two columns, or in one, for the templates in view/.

Lines that changed stand beside each other, with the words that changed marked.
"""

import difflib
import re
from itertools import groupby
from typing import NamedTuple

from markupsafe import Markup

SIMILAR = 0.4  # two lines that share less than this are not one line that changed
# The indentation, a number, a name, an operator of two signs, or any other sign.
WORD = re.compile(r"^\s+|\d[\w.]*|\w+|//|\*\*|->|[-+*/<>=!|]=|[^\w\s]")
TOKEN = re.compile(  # what is colored, by the names of its classes
    r'(?P<comment>#.*)|(?P<string>"[^"]*")|(?P<call>\w+(?=\())'
    r"|(?P<word>\b(?:if|for|in|import|from|def|return|True|None)\b)"
)


class Row(NamedTuple):
    """A line that goes, a line that comes, or both: a line that changed."""

    old: int | None  # its number in the stretch, from 0
    new: int | None
    old_marks: list  # [start, end] of each word that changed, in columns
    new_marks: list


class Cell(NamedTuple):
    """A line of one of two scripts, in a row of a grid."""

    side: str  # left, right
    kind: str  # old, new, same
    row: int  # from 1
    number: int  # of the line in its script, from 1
    hang: int  # columns by which its second line stands further right, if it is wrapped
    text: Markup


def changed_words(old, new):
    """Return where two versions of a line differ: two lists of [start, end] columns.

    Another indentation is no word.
    """
    old_tokens = list(WORD.finditer(old))
    new_tokens = list(WORD.finditer(new))
    old_words = [token[0] for token in old_tokens]
    new_words = [token[0] for token in new_tokens]
    # A dot or a bracket in both lines does not make two stretches alike.
    matcher = difflib.SequenceMatcher(
        lambda word: not re.search(r"\w", word), old_words, new_words, autojunk=False
    )
    old_marks = []
    new_marks = []
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        if tag != "equal" and "".join(old_words[i1:i2]).strip():
            old_marks.append([old_tokens[i1].start(), old_tokens[i2 - 1].end()])
        if tag != "equal" and "".join(new_words[j1:j2]).strip():
            new_marks.append([new_tokens[j1].start(), new_tokens[j2 - 1].end()])
    return old_marks, new_marks


def most_similar(old, new):
    """Return the indices of the two most similar lines, or None.

    `old` and `new` are lists of lines. It is None when no two lines are SIMILAR.
    """
    best = None
    highest = SIMILAR
    for i, old_line in enumerate(old):
        for j, new_line in enumerate(new):
            matcher = difflib.SequenceMatcher(None, old_line.strip(), new_line.strip())
            if matcher.ratio() > highest:
                best = i, j
                highest = matcher.ratio()
    return best


def rows(old, new, i=0, j=0):
    """Return the lines of a replaced stretch as a list of Row, from top to bottom.

    The two most similar lines are a pair, and so on above and below them. Numbers begin
    at `i` and `j`.
    """
    best = most_similar(old, new)
    if best is None:
        removed = [Row(i + number, None, [], []) for number in range(len(old))]
        added = [Row(None, j + number, [], []) for number in range(len(new))]
        return removed + added
    m, n = best
    above = rows(old[:m], new[:n], i, j)
    changed = Row(i + m, j + n, *changed_words(old[m], new[n]))
    below = rows(old[m + 1 :], new[n + 1 :], i + m + 1, j + n + 1)
    return [*above, changed, *below]


def marked(line, marks):
    """Return a line as HTML, colored, with each [start, end] of `marks` marked."""
    kinds = [""] * len(line)
    for found in TOKEN.finditer(line):
        kinds[found.start() : found.end()] = [found.lastgroup] * len(found[0])
    signs = list(zip(line, kinds, strict=True))
    shown = Markup()
    done = 0
    for start, end in marks:
        shown += colored(signs[done:start])
        shown += Markup("<mark>{}</mark>").format(colored(signs[start:end]))
        done = end
    return shown + colored(signs[done:])


def colored(signs):
    """Return a part of a line as HTML: pairs of a sign and its class, or ''."""
    shown = Markup()  # what is added to it is escaped
    for kind, group in groupby(signs, key=lambda sign: sign[1]):
        text = "".join(sign for sign, _ in group)
        span = Markup('<span class="{}">{}</span>').format(kind, text)
        shown += span if kind else text
    return shown


def cell(side, kind, row, index, line, marks):
    """Return the Cell of a script's line `index`, from 0."""
    indent = len(line) - len(line.lstrip())
    text = marked(line, marks).replace("(", Markup("(<wbr>"))  # may break there
    return Cell(side, kind, row, index + 1, indent + 2, text)


def cells(old, new, opcodes):
    """Return a hunk's lines of two scripts as Cells.

    In two columns a row has both sides. In one column, what goes comes before what
    comes, up to the next equal line: so that is the order of the cells.
    """
    found = []
    row = 1  # a heading has the first one
    for tag, i1, i2, j1, j2 in opcodes:
        if tag == "equal" and not "".join(old[i1:i2]).strip():
            continue  # nothing to see
        kinds = ("same", "same") if tag == "equal" else ("old", "new")
        left = []
        right = []
        for one in rows(old[i1:i2], new[j1:j2]):
            row += 1
            if one.old is not None:
                i = i1 + one.old
                left.append(cell("left", kinds[0], row, i, old[i], one.old_marks))
            if one.new is not None:
                j = j1 + one.new
                right.append(cell("right", kinds[1], row, j, new[j], one.new_marks))
        found += left + right
    return found
