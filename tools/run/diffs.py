"""Show the diff between two stages: `python -m tools.run.diffs 03_dp 04_ddp`."""

import ast
import difflib
import os
import sys
from typing import NamedTuple

from tools.run.stages import (
    EVERY,
    end_at_a_closed_pipe,
    find_stage,
    previous,
    refuse,
    script,
)

# The diffs that the pages explain, hunk by hunk.
EXPLAINED = [(previous(stage), stage) for stage in EVERY.values() if previous(stage)]


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


def diff(a, b):
    """Return the unified diff from stage `a` to stage `b` as a list of lines.

    The lines have no line end. Equal scripts give an empty list.
    """
    found = [f"--- {a}/mnist.py", f"+++ {b}/mnist.py"]
    for hunk in hunks(a, b):
        found += hunk.text
    return found if len(found) > 2 else []


def changed_lines(a, b):
    """Return how many lines `diff a b` marks with < or >."""
    return sum(len(hunk.changed()) for hunk in hunks(a, b))


def color(text):
    """Return a unified diff in the colors of a terminal, where there is one.

    NO_COLOR and TERM=dumb ask for none: https://no-color.org
    """
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    if plain or not sys.stdout.isatty():
        return text
    from pygments import highlight
    from pygments.formatters import TerminalFormatter
    from pygments.lexers import DiffLexer

    return highlight(text, DiffLexer(stripnl=False), TerminalFormatter()).rstrip("\n")


def show(a, b):
    """Print the diff from stage `a` to stage `b`, and how many lines it changes."""
    count = changed_lines(a, b)
    plural = "" if count == 1 else "s"
    print(f"\nFrom {a} to {b}: {count} changed line{plural}.")
    if count:
        print(color("\n".join(diff(a, b))))


def main():
    end_at_a_closed_pipe()
    names = [name for name in sys.argv[1:] if name]
    if len(names) != 2:
        refuse("name two stages: make diff A=02_single_gpu B=04_ddp")
    show(find_stage(names[0]), find_stage(names[1]))


if __name__ == "__main__":
    main()
