"""Commands for contributors: tests, linters, pages and the web site.

Each function runs commands in order and returns the exit status of the first that
fails, or 0.
"""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

from tools.run.stages import ROOT, refuse

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


def docs(check):
    """Regenerate every generated part; with `check`, fail if a file changes."""
    before = changes() if check else set()
    modules = "upstream", "blocks", "pictures", "stored"
    status = run(*[[PYTHON, "-m", f"tools.pages.{name}"] for name in modules])
    stale = changes() - before if check and not status else set()
    if stale:
        refuse("\n".join(["regenerated these stale files:", *sorted(stale)]))
    return status


def changes():
    """Return the files that differ from the last commit, as a set of "NAME DIGEST"."""
    words = ["git", "ls-files", "-mdo", "--exclude-standard"]
    listed = subprocess.run(words, capture_output=True, check=True, text=True).stdout
    found = set()
    for name in map(Path, listed.splitlines()):
        content = name.read_bytes() if name.exists() else b""
        found.add(f"{name} {hashlib.sha256(content).hexdigest()[:8]}")
    return found


def site(out=ROOT / "_site"):
    """Build the web site in a folder."""
    trees = out.with_name("_doctrees")
    options = ["-W", "--keep-going", "-q", "-c", "tools/site", "-d", trees]
    status = run([BIN / "sphinx-build", *options, ".", out])
    if not status:
        print((out / "index.html").as_uri())
    return status


def mutants():
    """Insert bugs into the code one at a time and check that a test catches each."""
    return run([PYTHON, "tests/mutants.py"])
