"""Show the diff between two stages: `python -m tools.run.diffs 03_dp 04_ddp`."""

import ast
import difflib
import os
import sys
import textwrap
from typing import NamedTuple

from pygments import highlight
from pygments.formatters import TerminalFormatter
from pygments.lexers import DiffLexer

from tools.run.ideas import Idea, ideas, step_of
from tools.run.stages import (
    EVERY,
    find_stage,
    previous,
    refuse,
    script,
)

# The diffs that the pages explain, hunk by hunk.
EXPLAINED = [(previous(stage), stage) for stage in EVERY.values() if previous(stage)]

COLUMNS = 80  # of a terminal
ROOM = 20  # lines, so that the run fits below them


class Hunk(NamedTuple):
    """Changed lines that are at most two equal lines apart, and a line around them."""

    opcodes: list  # (tag, i1, i2, j1, j2), as in difflib.SequenceMatcher
    section: str  # the section of the script that the hunk changes
    text: list  # the lines of a unified diff, from @@ on

    def changed(self):
        """Return the lines that the hunk removes or adds, as -line and +line."""
        return [line for line in self.text if line[0] in "+-"]


def lines(stage):
    """Return the lines of a stage's script, without line ends."""
    return script(stage).read_text().splitlines()


def sections(stage):
    """Return, for each line of a stage's script, the section that it belongs to.

    A section is a function or a class; `imports` before them, `start` after them.
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
    """Return the Hunk of some opcodes of difflib.SequenceMatcher.

    `old` and `new` are the lines of both scripts, each with its section.
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
    """Return the hunks of the diff from `a` to `b` by their ideas, plumbing last.

    A list of (Idea, [(number, Hunk), …]). Hunks that the page of `b` does not show come
    first, under an Idea without a title: of a pair that no page explains those are
    all, else those of a script that somebody has edited.
    """
    left = dict(enumerate(hunks(a, b), start=1))
    found = []
    for idea in ideas(a, b):
        shown = []
        for number in idea.numbers:
            if number in left and "\n".join(left[number].text[1:]) in idea.shown:
                shown.append((number, left.pop(number)))
        if shown:
            found.append((idea, shown))
    if left:
        found.insert(0, (Idea("", list(left), "", "", False), list(left.items())))
    return found


def color(text):
    """Return a unified diff in colors, where stdout is a terminal that wants some."""
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
    print(
        "\nTwo columns, the reasons, and what breaks without a line: make side_by_side"
    )


def hanging(line):
    """Return a line of a diff as lines of a terminal: what does not fit hangs."""
    code = line[1:].lstrip()
    hang = line[: len(line) - len(code)] + 4 * " "
    unbroken = {"break_long_words": False, "break_on_hyphens": False}
    return textwrap.wrap(line, COLUMNS, subsequent_indent=hang, **unbroken)


def to_the_left(changed):
    """Return changed lines without the indentation that they have in common."""
    code = textwrap.dedent("\n".join(line[1:] for line in changed))
    pairs = zip(changed, code.split("\n"), strict=True)
    return [line[0] + text for line, text in pairs]


def show_essential(a, b):
    """Print the essential lines of the diff by their ideas, as many as fit a screen.

    Without the plumbing. Of lines that stage 4 explains only those that the front page
    shows.
    """
    shown = []
    count = 0
    left_out = 0
    for idea, numbered in by_idea(a, b):
        changed = [line for _, hunk in numbered for line in hunk.changed()]
        if idea.title and b == "04_ddp":
            changed = [line for line in changed if step_of(line)]
        if idea.is_plumbing or not changed:
            continue
        head = [idea.title] if idea.title else []
        for line in to_the_left(changed):
            more = head + hanging(line)
            if left_out or len(shown) + len(more) > ROOM:
                left_out += 1
            else:
                shown += more
                head = []
                count += 1
    everything = changed_lines(a, b)
    said = f"{everything} lines changed"
    if count < everything:
        which = "here" if left_out else "essential"
        said += f", {count} of them {which}: make diff A={a} B={b} shows all"
    print(said, color("\n".join(shown)), sep="\n")


def main(a, b):
    """Show the diff between two stages that a person names."""
    if not a or not b:
        refuse("name two stages: make diff A=02_single_gpu B=04_ddp")
    show(find_stage(a), find_stage(b))
