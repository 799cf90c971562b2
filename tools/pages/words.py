"""Which lines of a replaced stretch belong together, and which words changed."""

import difflib
import io
import re
import tokenize

SIMILAR = 0.4  # two lines that share less than this are not one line that changed
WORD = re.compile(r"^\s+|\w+|[^\w\s]")


def python_tokens(line):
    """Return the columns (start, end) of Python's tokens in a line, in order.

    Strings and comments are left out, and so is the rest of a line that breaks off in
    a statement, such as the first line of a docstring.
    """
    found = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(line).readline):
            start = token.start[1]
            end = token.end[1]
            left_out = tokenize.STRING, tokenize.COMMENT, tokenize.NEWLINE
            if token.type not in left_out and start < end:
                found.append((start, end))
    except (tokenize.TokenError, SyntaxError):
        pass
    return found


def tokens(line):
    """Return the columns (start, end) of the tokens of a line, in order.

    The indentation is a token. What `python_tokens` leaves out is split into words.
    """
    found = []
    at = 0
    for start, end in python_tokens(line):
        found += [word.span() for word in WORD.finditer(line, at, start)]
        found.append((start, end))
        at = end
    found += [word.span() for word in WORD.finditer(line, at)]
    return found


def is_punctuation(text):
    """Return whether a token has no letter and no digit.

    A dot or a bracket in both lines does not make two stretches alike.
    """
    return not re.search(r"\w", text)


def changed_words(old, new):
    """Return where two versions of a line differ: two lists of [start, end] columns."""
    old_spans = tokens(old)
    new_spans = tokens(new)
    old_words = [old[start:end] for start, end in old_spans]
    new_words = [new[start:end] for start, end in new_spans]
    matcher = difflib.SequenceMatcher(
        is_punctuation, old_words, new_words, autojunk=False
    )
    old_marks = []
    new_marks = []
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        if tag != "equal" and i1 < i2:
            old_marks.append([old_spans[i1][0], old_spans[i2 - 1][1]])
        if tag != "equal" and j1 < j2:
            new_marks.append([new_spans[j1][0], new_spans[j2 - 1][1]])
    return old_marks, new_marks


def similarity(old, new):
    """Return how similar two lines are, from 0 to 1, without their indentation."""
    return difflib.SequenceMatcher(None, old.strip(), new.strip()).ratio()


def most_similar(old, new):
    """Return the indices of the two most similar lines, or None.

    `old` and `new` are lists of lines. It is None when no two lines are SIMILAR.
    """
    best = None
    highest = 0
    for i, old_line in enumerate(old):
        for j, new_line in enumerate(new):
            value = similarity(old_line, new_line)
            if value > highest:
                best = i, j
                highest = value
    return best if highest >= SIMILAR else None


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
