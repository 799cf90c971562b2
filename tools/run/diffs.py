"""Show the diff between two stages: `make diff A=02_single_gpu B=04_ddp`."""

import ast
import difflib
import os
import sys
from typing import NamedTuple

from pygments import highlight
from pygments.formatters import TerminalFormatter
from pygments.lexers import DiffLexer

from tools.run.ideas import Idea, ideas
from tools.run.stages import EVERY, OWN, find_stage, previous, refuse, script

# The diffs that the pages explain hunk by hunk.
EXPLAINED = [(previous(stage), stage) for stage in EVERY.values() if previous(stage)]


class Hunk(NamedTuple):
    """Changed lines at most two equal lines apart, with one line of context."""

    opcodes: list  # (tag, i1, i2, j1, j2), as in difflib.SequenceMatcher
    section: str  # the section of the script that it changes
    text: list  # the lines of a unified diff, starting at @@

    def changed(self):
        """Return the removed and added lines, as -line and +line."""
        return [line for line in self.text if line[0] in "+-"]


def lines(stage):
    """Return the lines of a stage's script without newlines."""
    return script(stage).read_text().splitlines()


def sections(stage):
    """Return the section of each line of a stage's script.

    A section is a function's or class's name, `imports` above and `start` below them.
    """
    found = ["imports"] * len(lines(stage))
    for node in ast.parse(script(stage).read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.If):
            decorators = getattr(node, "decorator_list", [])
            first = min(part.lineno for part in [node, *decorators]) - 1
            name = getattr(node, "name", "start")
            found[first:] = [name] * (len(found) - first)
    return found


def hunks(a, b):
    """Return the hunks of `diff -U1` from stage `a` to stage `b`."""
    old = list(zip(lines(a), sections(a), strict=True))
    new = list(zip(lines(b), sections(b), strict=True))
    matcher = difflib.SequenceMatcher(None, lines(a), lines(b))
    return [make_hunk(old, new, found) for found in matcher.get_grouped_opcodes(1)]


def make_hunk(old, new, opcodes):
    """Return the Hunk for a group of opcodes from difflib.SequenceMatcher.

    `old` and `new` are lists of (line, section) for both scripts.
    """
    text = []
    touched = []
    for tag, i1, i2, j1, j2 in opcodes:
        if tag == "equal":
            text += [f" {line}" for line, _ in old[i1:i2]]
            continue
        text += [f"-{line}" for line, _ in old[i1:i2]]
        text += [f"+{line}" for line, _ in new[j1:j2]]
        touched += [section for _, section in old[i1:i2] + new[j1:j2]]
    section = " and ".join(dict.fromkeys(touched))
    _, i, _, j, _ = opcodes[0]
    _, _, i_end, _, j_end = opcodes[-1]
    head = f"@@ -{i + 1},{i_end - i} +{j + 1},{j_end - j} @@ {section}"
    return Hunk(opcodes, section, [head, *text])


def changed_lines(a, b):
    """Return how many lines `diff a b` marks with < or >."""
    return sum(len(hunk.changed()) for hunk in hunks(a, b))


def by_idea(a, b):
    """Return the hunks of the diff from `a` to `b` grouped by idea, plumbing last.

    A list of (Idea, [(number, Hunk), …]). Hunks that `b`'s page does not show come
    first, under an Idea without a title: all hunks if no page explains this pair,
    otherwise an edited script's.
    """
    left = dict(enumerate(hunks(a, b), start=1))
    found = []
    for idea in ideas(a, b):
        shown = []
        for number in idea.numbers:
            text = "\n".join(left[number].text[1:]) if number in left else None
            if text and (text in idea.shown or idea.is_plumbing):
                shown.append((number, left.pop(number)))
        if shown:
            found.append((idea, shown))
    if left:
        found.insert(0, (Idea("", list(left), "", "", False), list(left.items())))
    return found


def color(text):
    """Return a unified diff, colored if stdout is a terminal without NO_COLOR."""
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return text
    return highlight(text, DiffLexer(stripnl=False), TerminalFormatter()).rstrip("\n")


def show(a, b):
    """Print the diff from `a` to `b` under the titles of its ideas, plumbing last."""
    count = changed_lines(a, b)
    print(f"\nFrom {a} to {b}: {count} changed line{'' if count == 1 else 's'}.")
    if not count:
        return
    print(f"--- {a}/{script(a).name}\n+++ {b}/{script(b).name}")
    for idea, found in by_idea(a, b):
        if idea.title:
            print(f"\n{idea.title}")
        for _, hunk in found:
            print(color("\n".join(hunk.text)))
    print("\nWith reasons, and what breaks without a line: make side_by_side")


def main(a, b):
    """Show the diff between two stages named by the user, or between two of OWN."""
    if not a or not b:
        refuse("name two stages: make diff A=02_single_gpu B=04_ddp")
    show(*[name if name in OWN else find_stage(name) for name in (a, b)])
