"""Lay out a diff in one or two columns for the templates in view/.

The two versions of a changed line are paired, and their changed words marked.
"""

import difflib
import functools
import re
from itertools import groupby
from typing import NamedTuple

from markupsafe import Markup
from pygments.lexers import PythonLexer
from pygments.token import Token

SIMILAR = 0.4  # less similar lines are not paired
# Indentation, a number, a name, a two-character operator or any other character.
WORD = re.compile(r"^\s+|\d[\w.]*|\w+|//|\*\*|->|[-+*/<>=!|]=|[^\w\s]")
CLASSES = {  # token type -> CSS class
    Token.Comment: "comment",
    Token.Literal.String: "string",
    Token.Keyword: "word",
    Token.Operator.Word: "word",
}


class Row(NamedTuple):
    """A removed line, an added line, or both versions of a changed line."""

    old: int | None  # its index in the replaced lines
    new: int | None
    old_marks: list  # [start, end] columns of each changed word
    new_marks: list


class Cell(NamedTuple):
    """A line of the old or new script in a row of a grid."""

    side: str  # left, right
    kind: str  # old, new, same
    row: int  # from 1
    number: int  # of the line in its script, from 1
    hang: int  # columns by which its wrapped lines are indented
    text: Markup


def changed_words(old, new):
    """Return the changed words of a line's two versions: lists of [start, end] columns.

    Changed indentation is not marked.
    """
    old_tokens = list(WORD.finditer(old))
    new_tokens = list(WORD.finditer(new))
    old_words = [token[0] for token in old_tokens]
    new_words = [token[0] for token in new_tokens]
    # Don't match on punctuation alone.
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
    """Return the indices of the two most similar lines, or None if none are SIMILAR."""
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
    """Return replaced lines as a list of Row, from top to bottom.

    The two most similar lines are paired first, then those above and below them.
    Numbers begin at `i` and `j`.
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


@functools.cache
def classes_of(script):
    """Return the CSS class of each character of a script, a list per line."""
    kinds = []
    for _, token, value in PythonLexer().get_tokens_unprocessed(script):
        kind = next((name for one, name in CLASSES.items() if token in one), "")
        kinds += [kind] * len(value)
    for call in re.finditer(r"\w+(?=\()", script):
        if not kinds[call.start()]:
            kinds[call.start() : call.end()] = ["call"] * len(call[0])
    found = []
    for line in script.splitlines(keepends=True):
        found.append(kinds[: len(line.rstrip("\n"))])
        kinds = kinds[len(line) :]
    return found


def marked(line, kinds, marks):
    """Return a line as HTML, colored by `kinds`, with each [start, end] marked.

    `kinds` contains the class of each character, or "".
    """
    signs = list(zip(line, kinds, strict=True))
    shown = Markup()
    done = 0
    for start, end in marks:
        shown += colored(signs[done:start])
        shown += Markup("<mark>{}</mark>").format(colored(signs[start:end]))
        done = end
    return shown + colored(signs[done:])


def colored(signs):
    """Return pairs of a character and its class, or '', as HTML."""
    shown = Markup()  # escapes each string added to it
    for kind, group in groupby(signs, key=lambda sign: sign[1]):
        text = "".join(sign for sign, _ in group)
        span = Markup('<span class="{}">{}</span>').format(kind, text)
        shown += span if kind else text
    return shown


def cell(side, kind, row, index, lines, marks=(), cut=0):
    """Return the Cell of line `index`, from 0, without its first `cut` columns."""
    line = lines[index][cut:]
    hang = len(line) - len(line.lstrip()) + 2
    kinds = classes_of("\n".join(lines))[index][cut:]
    marks = [(max(start - cut, 0), end - cut) for start, end in marks]
    text = marked(line, kinds, marks).replace("(", Markup("(<wbr>"))  # may wrap there
    return Cell(side, kind, row, index + 1, hang, text)


def cells(old, new, opcodes, cut=0):
    """Return a hunk's lines of two scripts as Cells, without their first `cut` columns.

    In two columns, a row contains both sides. In one column, removed lines come before
    added ones, up to the next equal line. The cells are in that order.
    """
    found = []
    row = 1  # row 1 is the heading
    for tag, i1, i2, j1, j2 in opcodes:
        if tag == "equal" and not "".join(old[i1:i2]).strip():
            continue  # blank lines
        kinds = ("same", "same") if tag == "equal" else ("old", "new")
        left = []
        right = []
        for one in rows(old[i1:i2], new[j1:j2]):
            row += 1
            if one.old is not None:
                i = i1 + one.old
                left.append(cell("left", kinds[0], row, i, old, one.old_marks, cut))
            if one.new is not None:
                j = j1 + one.new
                right.append(cell("right", kinds[1], row, j, new, one.new_marks, cut))
        found += left + right
    return found
