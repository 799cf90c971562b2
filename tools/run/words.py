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


def aligned(old, new, i=0, j=0):
    """Pair the lines of a replaced stretch, whose numbers begin at `i` and `j`.

    Returns (i, j) for lines that are similar, (i, None) and (None, j) for others. The
    two most similar lines are a pair, and so on above and below them.
    """
    best = most_similar(old, new)
    if best is None:
        removed = [(i + number, None) for number in range(len(old))]
        added = [(None, j + number) for number in range(len(new))]
        return removed + added
    m, n = best
    above = aligned(old[:m], new[:n], i, j)
    below = aligned(old[m + 1 :], new[n + 1 :], i + m + 1, j + n + 1)
    return [*above, (i + m, j + n), *below]


def rows(old, new):
    """Return the lines of a replaced stretch as a list of Row, from top to bottom."""
    found = []
    for i, j in aligned(old, new):
        marks = [], []
        if i is not None and j is not None:
            marks = changed_words(old[i], new[j])
        found.append(Row(i, j, *marks))
    return found
