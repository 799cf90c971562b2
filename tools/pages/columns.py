"""The lines of a diff in two columns, or in one, for the templates in view/."""

import re
from itertools import groupby
from typing import NamedTuple

from markupsafe import Markup

from tools.run import words

TOKEN = re.compile(  # what is colored, by the names of its classes
    r'(?P<comment>#.*)|(?P<string>"[^"]*")|(?P<call>\w+(?=\())'
    r"|(?P<word>\b(?:if|for|in|import|from|def|return|True|None)\b)"
)


class Cell(NamedTuple):
    """A line of one of two scripts, in a row of a grid."""

    side: str  # left, right
    kind: str  # old, new, same
    row: int  # from 1
    number: int  # of the line in its script, from 1
    hang: int  # columns by which its second line stands further right, if it is wrapped
    text: Markup


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
    return Cell(side, kind, row, index + 1, indent + 2, marked(line, marks))


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
        for one in words.rows(old[i1:i2], new[j1:j2]):
            row += 1
            if one.old is not None:
                i = i1 + one.old
                left.append(cell("left", kinds[0], row, i, old[i], one.old_marks))
            if one.new is not None:
                j = j1 + one.new
                right.append(cell("right", kinds[1], row, j, new[j], one.new_marks))
        found += left + right
    return found
