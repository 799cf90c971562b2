"""Has anything in this repository outgrown its limit? `python tools/limits.py`.

Prints each figure above its limit in tools/limits.toml, and then exits with 1; `--all`
prints every figure. It counts the files that git tracks. Only the standard library is
used, so any Python can run it.
"""

import ast
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
LONG_MODULE = 250  # lines
LONG_FUNCTION = 45
# A figure counts the files that fit the words before "but", and none after it. Here *
# stands for folders, too.
LINES = {
    "Python in tools": "tools/*.py",
    "Python in tests": "tests/*.py",
    "Python in onecurve/src": "onecurve/src/*.py",
    "Python in onecurve/tests": "onecurve/tests/*.py",
    "Python in onecurve/eval": "onecurve/eval/*.py but onecurve/eval/cases/*",
    "patches": "*.patch",
    "diffs": "*.diff but onecurve/*",
    "web code": "tools/*.html tools/*.css tools/*.js",
    "Makefile": "Makefile",
    "pages": "*.md but exercises/*",
    "pages of exercises": "exercises/*.md",
}
COUNTED = "*.py *.patch *.html *.css *.js *.md *.sh *.svg *.png"
BYTES = {  # data: what no figure above counts, without pictures and pinned versions
    "data in tools": f"tools/* but {COUNTED} *.diff tools/requirements/*",
    "data in tests": f"tests/* but {COUNTED} *.diff",
    "data in onecurve/src": f"onecurve/src/* but {COUNTED}",
    "data in onecurve/tests": f"onecurve/tests/* but {COUNTED}",
    "data in onecurve/eval": f"onecurve/eval/* but {COUNTED}",
    "cases in onecurve/eval": "onecurve/eval/cases/*.py",
}
MODULES = "tools/*.py onecurve/src/*.py"
FUNCTIONS = f"{MODULES} tests/*.py onecurve/tests/*.py"


def fits(name, patterns):
    """Return whether a path, a text, fits one of some patterns."""
    return any(fnmatch(name, pattern) for pattern in patterns.split())


def files(root, patterns):
    """Return the paths of the files that git tracks, that exist and that count."""
    wanted, _, unwanted = patterns.partition(" but ")
    words = ["git", "ls-files", "-z"]
    listed = subprocess.run(words, cwd=root, capture_output=True, check=True)
    found = []
    for name in listed.stdout.decode().split("\0"):
        if fits(name, wanted) and not fits(name, unwanted) and (root / name).exists():
            found.append(root / name)
    return found


def count_lines(path):
    """Return how many lines a file has."""
    return len(path.read_bytes().splitlines())


def long_functions(path):
    """Return how many functions of a module are longer than LONG_FUNCTION."""
    count = 0
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            count += node.end_lineno - node.lineno + 1 > LONG_FUNCTION
    return count


def measure(root):
    """Return every figure of the checkout in a folder: {its name: a number}."""
    figures = {}
    for name, patterns in LINES.items():
        figures[name] = sum(map(count_lines, files(root, patterns)))
    for name, patterns in BYTES.items():
        figures[name] = sum(path.stat().st_size for path in files(root, patterns))
    lengths = map(count_lines, files(root, MODULES))
    long_modules = sum(length > LONG_MODULE for length in lengths)
    figures[f"modules over {LONG_MODULE} lines"] = long_modules
    counts = map(long_functions, files(root, FUNCTIONS))
    figures[f"functions over {LONG_FUNCTION} lines"] = sum(counts)
    return figures


def main(root=ROOT):
    """Print what is over its limit. Raises SystemExit if anything is.

    A figure without a limit, or a limit without a figure, is an error, too.
    """
    limits = tomllib.loads((root / "tools/limits.toml").read_text(encoding="utf-8"))
    figures = measure(root)
    if limits.keys() != figures.keys():
        names = sorted(limits.keys() ^ figures.keys())
        sys.exit(f"tools/limits.toml and tools/limits.py differ: {', '.join(names)}")
    over = [name for name in figures if figures[name] > limits[name]]
    for name in figures if "--all" in sys.argv else over:
        print(f"{name}: {figures[name]}, limit {limits[name]}")
    if over:
        sys.exit(1)


if __name__ == "__main__":
    main()
