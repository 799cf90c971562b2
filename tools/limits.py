"""Check this repository's size limits: `python tools/limits.py`.

Prints each figure above its limit in tools/limits.toml and then exits with status 1;
`--all` prints every figure. Only files tracked by git count.
"""

import ast
import subprocess
import sys
from fnmatch import filter as matching
from pathlib import Path

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]


def tracked(root):
    """Return the names of the existing files below a folder that git tracks."""
    words = ["git", "ls-files", "-z"]
    listed = subprocess.run(words, cwd=root, capture_output=True, check=True)
    names = listed.stdout.decode().split("\0")
    return [name for name in names if name and (root / name).is_file()]


def lines(path):
    return len(path.read_bytes().splitlines())


def long_functions(path):
    count = 0
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef):
            count += node.end_lineno - node.lineno + 1 > 45
    return count


MEASURES = {
    "lines": lines,
    "bytes": lambda path: path.stat().st_size,
    "modules over 250 lines": lambda path: lines(path) > 250,
    "functions over 45 lines": long_functions,
}


def chosen(names, row):
    """Return the names that match a pattern in `files` but none in `but`."""
    found = set()
    for pattern in row["files"].split():
        found.update(matching(names, pattern))
    for pattern in row.get("but", "").split():
        found -= set(matching(names, pattern))
    return found


def main(root=ROOT, words=()):
    """Print figures above their limits. Raises SystemExit if there are any."""
    limits = tomllib.loads((root / "tools/limits.toml").read_text(encoding="utf-8"))
    names = tracked(root)
    status = 0
    for measure, rows in limits.items():
        for title, row in rows.items():
            figure = sum(MEASURES[measure](root / name) for name in chosen(names, row))
            is_over = figure > row["most"]
            status |= is_over
            if is_over or "--all" in words:
                print(f"{title}: {figure} {measure}, limit {row['most']}")
    if status:
        sys.exit(1)


if __name__ == "__main__":
    main(words=sys.argv[1:])
