"""What those run who change something: the tests, the linters, the pages, the packages.

Each function runs commands one after the other, and returns the exit status of the
first one that fails, or 0.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.run.packages import needed
from tools.run.stages import ROOT, refuse

BIN = Path(sys.executable).parent
REQUIREMENTS = "tools/requirements"
LISTS = ["dev", "learn"]  # the second one has the pins of the first


def program(name):
    """Return the path of a program that a package has installed."""
    found = BIN / name
    return str(found) if found.exists() else name


def python(*words):
    """Return the words that run this Python."""
    return [sys.executable, *words]


def run(*commands, **options):
    """Run commands until one fails; return its exit status, or 0."""
    for words in commands:
        status = subprocess.run([str(word) for word in words], **options).returncode
        if status:
            return status
    return 0


def test():
    """Run the tests. ALL=1, which they read themselves, adds the slow ones."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    words = python("-m", "pytest", "-n", "2", "--dist", "loadgroup")
    return run(words, env=environment)


def lint():
    """Check style, imports, limits, and the generated parts that need no run."""
    imports = [program("lint-imports"), "--no-logo", "--no-cache"]
    shell = ["tools/run/slurm.sh", "tests/cluster/up.sh", ".ci/run"]
    own = {"cwd": ROOT / "onecurve"}
    return run(
        [program("ruff"), "check", "."],
        [program("ruff"), "format", "--check", "."],
        imports,
        [program("shellcheck"), *shell],
        python("tools/limits.py"),
        python("-m", "tools.pages.blocks", "--check"),
        python("-m", "tools.pages.stored", "--check"),
    ) or run(imports, python("eval/pages.py", "--check"), **own)


def docs(check):
    """Write every generated part anew; with `check`, name what would change."""
    if check:
        stale = changed_by([sys.executable, "-m", "tools", "docs", "CHECK="])
        for name in stale:
            print(f"{name} is stale: make docs")
        return int(bool(stale))
    modules = "upstream", "blocks", "pictures", "stored"
    return run(*[python("-m", f"tools.pages.{name}") for name in modules])


def changed_by(words):
    """Return the names of the files that a command changes, which is run in a copy.

    Ends the program if the command fails.
    """
    listed = ["git", "ls-files", "-co", "--exclude-standard"]
    names = subprocess.run(listed, capture_output=True, check=True, text=True).stdout
    with tempfile.TemporaryDirectory() as folder:
        for name in filter(os.path.isfile, names.splitlines()):
            target = Path(folder, name)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(name, target)  # with its age, which make looks at
        Path(folder, ".venv").symlink_to(ROOT / ".venv")
        run(["git", "init", "-q"], ["git", "add", "."], cwd=folder)
        status = run(words, cwd=folder, env={**os.environ, "MAKEFLAGS": ""})
        if status:
            refuse(f"{words[0]} failed with exit status {status}")
        shown = ["git", "status", "--porcelain", "-uall"]
        found = subprocess.run(shown, cwd=folder, capture_output=True, text=True).stdout
    # The second letter compares a file with its copy as it was added.
    return sorted(line[3:] for line in found.splitlines() if line[1] != " ")


def site(out=ROOT / "_site"):
    """Build the web site in a folder."""
    trees = out.with_name("_doctrees")
    options = ["-W", "--keep-going", "-q", "-c", "tools/site", "-d", trees]
    status = run([program("sphinx-build"), *options, ".", out])
    if not status:
        print((out / "index.html").as_uri())
    return status


def lock(upgrade):
    """Pin the packages of both lists; `upgrade` is an option of uv."""
    uv = shutil.which("uv") or program("uv")
    options = ["--universal", "--python-version", "3.10", "--no-annotate"]
    options += ["--custom-compile-command", "make lock", *upgrade.split()]
    commands = []
    for name in LISTS:
        group = ["--group", f"pyproject.toml:{name}"]
        words = [uv, "pip", "compile", "-q", *options, "pyproject.toml", *group]
        words += ["-c", f"{REQUIREMENTS}/dev.txt"] if name == "learn" else []
        commands.append([*words, "-o", f"{REQUIREMENTS}/{name}.txt"])
    return run(*commands)


def mutants():
    """Put bugs into the code, one at a time: a test must catch each."""
    return run(python("tests/mutants.py"))


def compat(version):
    """Run the twelve stages of the first curve with another PyTorch."""
    if not version:
        refuse("make compat needs a version, such as TORCH=2.9.1")
    place = f".venv-{version}"
    other = f"{place}/bin/python"
    packages = [name for name in needed() if name != "torch"]
    install = [other, "-m", "pip", "install", "-q"]
    make = ["make", f"PY={other}", "GPUS=cpu", f"OUT=runs/compat-{version}"]
    return run(
        python("-m", "venv", place),
        [*install, f"torch=={version}", *packages],
        [*install, "--no-deps", "./onecurve"],
        [*make, "all", "beyond"],
        [other, "-m", "tools.pages.upstream"],
    )
