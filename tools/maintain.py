"""Commands for contributors: tests, linters, pages and the web site.

Each function runs commands in order and returns the exit status of the first that
fails, or 0.
"""

import os
import subprocess
import sys
from pathlib import Path

from tools.run.stages import ROOT

PYTHON = sys.executable
BIN = Path(PYTHON).parent  # has the programs installed next to it


def run(*commands, **options):
    """Run commands until one fails; return its exit status, or 0."""
    for words in commands:
        status = subprocess.run([str(word) for word in words], **options).returncode
        if status:
            return status
    return 0


def test():
    """Run the tests. The tests read ALL=1 themselves and add the slow ones."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    words = [PYTHON, "-m", "pytest", "-n", "2", "--dist", "loadgroup"]
    return run(words, env=environment)


def lint():
    """Check style, imports, limits and the generated parts that need no run."""
    imports = [BIN / "lint-imports", "--no-logo", "--no-cache"]
    shell = ["tools/run/slurm.sh", "tests/cluster/up.sh", ".ci/run"]
    own = {"cwd": ROOT / "onecurve"}
    return run(
        [BIN / "ruff", "check", "."],
        [BIN / "ruff", "format", "--check", "."],
        imports,
        [BIN / "shellcheck", *shell],
        [PYTHON, "tools/limits.py"],
        [PYTHON, "-m", "tools.pages.blocks", "--check"],
        [PYTHON, "-m", "tools.pages.stored", "--check"],
    ) or run(imports, [PYTHON, "eval/pages.py", "--check"], **own)


def docs():
    """Regenerate every generated part; `git diff` then shows what was stale."""
    modules = "upstream", "blocks", "pictures", "stored"
    return run(*[[PYTHON, "-m", f"tools.pages.{name}"] for name in modules])


def site(out=ROOT / "_site"):
    """Build the whole site in a folder: Sphinx (-E) can't see changed templates."""
    trees = out.with_name("_doctrees")
    options = ["-E", "-W", "--keep-going", "-q", "-c", "tools/site", "-d", trees]
    status = run([BIN / "sphinx-build", *options, ".", out])
    if not status:
        print((out / "index.html").as_uri())
    return status


def mutants():
    """Insert bugs into the code one at a time and check that a test catches each."""
    return run([PYTHON, "tests/mutants.py"])
