"""Show the diff between two stages: `python -m tools.diffs 03_dp 04_ddp`."""

import difflib
import sys

from tools.stages import find, refuse, script

RED, GREEN, CYAN, BOLD, RESET = "\033[31m", "\033[32m", "\033[36m", "\033[1m", "\033[0m"


def diff(a, b, context=3):
    """Return the unified diff from stage `a` to stage `b` as a list of lines.

    The lines have no line end. Equal scripts give an empty list.
    """
    old, new = (script(stage).read_text().splitlines() for stage in (a, b))
    names = f"{a}/mnist.py", f"{b}/mnist.py"
    return list(difflib.unified_diff(old, new, *names, lineterm="", n=context))


def changed_lines(a, b):
    """Return how many lines `diff a b` marks with < or >."""
    return sum(line[0] in "+-" for line in diff(a, b, context=0)[2:])


def colour(line):
    """Return a line of a diff in the colours of a terminal."""
    if line.startswith(("---", "+++")):
        return BOLD + line + RESET
    start = {"-": RED, "+": GREEN, "@": CYAN}.get(line[:1])
    return start + line + RESET if start else line


def show(a, b, colours):
    """Print the diff from stage `a` to stage `b`, with a line that says how long it is."""
    count = changed_lines(a, b)
    print(f"\nFrom {a} to {b}: {count} changed line{'s' * (count != 1)}.")
    for line in diff(a, b):
        print(colour(line) if colours else line)


if __name__ == "__main__":
    names = [name for name in sys.argv[1:] if name]
    if len(names) != 2:
        refuse("name two stages: make diff A=02_single_gpu B=04_ddp")
    show(*map(find, names), colours=sys.stdout.isatty())
