"""Which lines of a replaced stretch belong together, and which words changed."""

import difflib
import re
from typing import NamedTuple

SIMILAR = 0.4  # two lines that share less than this are not one line that changed
# The indentation, a number, a name, an operator of two signs, or any other sign.
TOKEN = re.compile(r"^\s+|\d[\w.]*|\w+|//|\*\*|->|[-+*/<>=!|]=|[^\w\s]")


class Row(NamedTuple):
    """A line that goes, a line that comes, or both: a line that changed."""

    old: int | None  # its number in the stretch, from 0
    new: int | None
    old_marks: list  # [start, end] of each word that changed, in columns
    new_marks: list


def is_punctuation(text):
    """Return whether a token has no letter and no digit.

    A dot or a bracket in both lines does not make two stretches alike.
    """
    return not re.search(r"\w", text)


def changed_words(old, new):
    """Return where two versions of a line differ: two lists of [start, end] columns.

    Another indentation is no word.
    """
    old_tokens = list(TOKEN.finditer(old))
    new_tokens = list(TOKEN.finditer(new))
    old_words = [token[0] for token in old_tokens]
    new_words = [token[0] for token in new_tokens]
    matcher = difflib.SequenceMatcher(
        is_punctuation, old_words, new_words, autojunk=False
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
