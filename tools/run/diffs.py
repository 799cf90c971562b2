"""Show the diff between two stages: `python -m tools.run.diffs 03_dp 04_ddp`."""

import ast
import difflib
import sys
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


def colour(line):
    """Return a line of a diff in the colours of a terminal."""
    code = COLOURS.get(line[:3]) or COLOURS.get(line[:1])
    return f"\033[{code}m{line}\033[0m" if code else line


def show(a, b, colours):
    """Print the diff from stage `a` to stage `b`, with a line that says how long it is."""
    count = changed_lines(a, b)
    print(f"\nFrom {a} to {b}: {count} changed line{'s' * (count != 1)}.")
    for line in diff(a, b):
        print(colour(line) if colours else line)


def main():
    end_at_a_closed_pipe()
    names = [name for name in sys.argv[1:] if name]
    if len(names) != 2:
        refuse("name two stages: make diff A=02_single_gpu B=04_ddp")
    show(*map(find, names), colours=sys.stdout.isatty())


if __name__ == "__main__":
    main()
