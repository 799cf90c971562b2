"""Show the diff between two stages: `python -m tools.run.diffs 03_dp 04_ddp`."""

import ast
import difflib
import io
import os
import re
import sys
import tokenize
from contextlib import suppress
from itertools import product
from typing import NamedTuple

from tools.run.stages import (
    EVERY,
    LESSON_FROM,
    end_at_a_closed_pipe,
    find,
    previous,
    refuse,
    script,
)

# How a line starts, and what a terminal takes for bold, red, green and cyan.
COLOURS = {"---": "1", "+++": "1", "-": "31", "+": "32", "@": "36"}
SIMILAR = 0.4  # two lines that share less than this are not one line that changed

# The diffs that the pages explain, hunk by hunk: the page of a stage has those to it.
EXPLAINED = [
    *((previous(stage), stage) for stage in EVERY.values() if previous(stage)),
    *((base, stage) for stage, base in LESSON_FROM.items()),
]


class Hunk(NamedTuple):
    """Changed lines that are at most two equal lines apart, and a line around them."""

    opcodes: list  # (tag, i1, i2, j1, j2), as of difflib.SequenceMatcher
    section: str  # the section of the script that it changes
    text: list  # the lines of a unified diff, from @@ on

    def changed(self):
        """Return the lines that it takes out or brings in, as -line and +line."""
        return [line for line in self.text if line[0] in "+-"]


def lines(stage):
    """Return the lines of a stage's script, without line ends."""
    return script(stage).read_text().splitlines()


def sections(stage):
    """Return for each line of a stage's script the section that it belongs to.

    A section is a function or a class, `imports` before them, or `start` after them.
    """
    found = ["imports"] * len(lines(stage))
    for node in ast.parse(script(stage).read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.If):
            decorators = getattr(node, "decorator_list", [])
            first = min(part.lineno for part in [node, *decorators]) - 1
            found[first:] = [getattr(node, "name", "start")] * (len(found) - first)
    return found


def hunks(a, b):
    """Return the hunks of the diff from stage `a` to stage `b`; equal scripts have none.

    They are those of `diff -U1`.
    """
    old, new = lines(a), lines(b)
    old_sections, new_sections = sections(a), sections(b)
    found = []
    for opcodes in difflib.SequenceMatcher(None, old, new).get_grouped_opcodes(1):
        (_, i, _, j, _), (_, _, i_end, _, j_end) = opcodes[0], opcodes[-1]
        text, touched = [], {}
        for tag, i1, i2, j1, j2 in opcodes:
            if tag == "equal":
                text += [f" {line}" for line in old[i1:i2]]
                continue
            text += [f"-{line}" for line in old[i1:i2]]
            text += [f"+{line}" for line in new[j1:j2]]
            touched |= dict.fromkeys(old_sections[i1:i2] + new_sections[j1:j2])
        section = " and ".join(touched)
        head = f"@@ -{i + 1},{i_end - i} +{j + 1},{j_end - j} @@ {section}"
        found.append(Hunk(opcodes, section, [head, *text]))
    return found


def diff(a, b):
    """Return the unified diff from stage `a` to stage `b` as a list of lines.

    The lines have no line end. Equal scripts give an empty list.
    """
    found = [line for hunk in hunks(a, b) for line in hunk.text]
    return [f"--- {a}/mnist.py", f"+++ {b}/mnist.py", *found] if found else []


def changed_lines(a, b):
    """Return how many lines `diff a b` marks with < or >."""
    return sum(len(hunk.changed()) for hunk in hunks(a, b))


def tokens(line):
    """Return the columns (start, end) of Python's tokens in a line, its indentation one.

    A string and a comment are taken apart into words. So is the rest of a line that
    breaks off in a statement, such as the first of a docstring.
    """
    found = []
    with suppress(tokenize.TokenError, SyntaxError):
        for token in tokenize.generate_tokens(io.StringIO(line).readline):
            (_, start), (_, end) = token.start, token.end
            whole = token.type not in (tokenize.STRING, tokenize.COMMENT)
            if whole and token.type != tokenize.NEWLINE and start < end:
                found.append((start, end))
    word, at = re.compile(r"^\s+|\w+|[^\w\s]"), 0
    for start, end in [*found, (len(line), len(line))]:
        found += [one.span() for one in word.finditer(line, at, start)]
        at = end
    return sorted(found)


def changed_words(old, new):
    """Return where two versions of a line differ: two lists of [start, end] columns."""
    spans = tokens(old), tokens(new)
    words = ([old[a:b] for a, b in spans[0]], [new[a:b] for a, b in spans[1]])

    def no_word(text):  # a dot or a bracket in both does not make two stretches alike
        return not re.search(r"\w", text)

    matcher = difflib.SequenceMatcher(no_word, *words, autojunk=False)
    changed = [places for tag, *places in matcher.get_opcodes() if tag != "equal"]

    def columns(span, stretches):
        return [[span[a][0], span[b - 1][1]] for a, b in stretches if a < b]

    return (
        columns(spans[0], [(i1, i2) for i1, i2, _, _ in changed]),
        columns(spans[1], [(j1, j2) for _, _, j1, j2 in changed]),
    )


def aligned(old, new, i=0, j=0):
    """Pair the lines of a replaced stretch, whose numbers begin at `i` and `j`.

    Returns (i, j) for lines that are alike, (i, None) and (None, j) for others. The two
    most similar lines are a pair, and so on above and below them.
    """

    def similarity(pair):
        a, b = old[pair[0]].strip(), new[pair[1]].strip()
        return difflib.SequenceMatcher(None, a, b).ratio()

    pairs = list(product(range(len(old)), range(len(new))))
    best = max(pairs, key=similarity, default=None)
    if best is None or similarity(best) < SIMILAR:
        gone = [(i + n, None) for n in range(len(old))]
        return gone + [(None, j + n) for n in range(len(new))]
    m, n = best
    above = aligned(old[:m], new[:n], i, j)
    below = aligned(old[m + 1 :], new[n + 1 :], i + m + 1, j + n + 1)
    return [*above, (i + m, j + n), *below]


def colour(lines):
    """Return the lines of a unified diff in the colours of a terminal.

    The words that changed in a line are in reverse. Where no terminal shows them, or
    one that wants no colours (NO_COLOR, TERM=dumb), the lines are as they were.
    """
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    if plain or not sys.stdout.isatty():
        return lines
    marks = {}
    heads = "---", "+++"
    kinds = "".join(
        " " if line.startswith(heads) else line[:1] or " " for line in lines
    )
    for stretch in re.finditer(r"(-+)(\++)", kinds):
        (i, j), end = (stretch.start(n) for n in (1, 2)), stretch.end()
        old, new = ([line[1:] for line in lines[a:b]] for a, b in ((i, j), (j, end)))
        for pair in aligned(old, new, i, j):
            if None not in pair:
                words = changed_words(*(lines[n][1:] for n in pair))
                marks |= zip(pair, words, strict=True)
    found = []
    for number, line in enumerate(lines):
        code = COLOURS.get(line[:3]) or COLOURS.get(line[:1])
        for start, end in reversed(marks.get(number, [])):
            start, end = start + 1, end + 1  # after the sign
            line = f"{line[:start]}\033[7m{line[start:end]}\033[27m{line[end:]}"
        found.append(f"\033[{code}m{line}\033[0m" if code else line)
    return found


def show(a, b):
    """Print the diff from stage `a` to stage `b`, with a line that says how long it is."""
    count = changed_lines(a, b)
    print(f"\nFrom {a} to {b}: {count} changed line{'s' * (count != 1)}.")
    for line in colour(diff(a, b)):
        print(line)


def main():
    end_at_a_closed_pipe()
    names = [name for name in sys.argv[1:] if name]
    if len(names) != 2:
        refuse("name two stages: make diff A=02_single_gpu B=04_ddp")
    show(*map(find, names))


if __name__ == "__main__":
    main()
