"""`make inspect`: run the inspector on a script, with links to the tutorial."""

import shlex
import subprocess
import sys
from pathlib import Path

from tools.run.stages import ROOT, refuse

EXPLAINED = ROOT / "tools/run/explained.csv"  # pages that explain findings


def main(path, ranks, flags):
    """Inspect a script on `ranks` ranks, by default 2; return the exit status."""
    if not path:
        refuse("no script given. Try: make inspect SCRIPT=train.py")
    words = [sys.executable, "-m", "onecurve", "--pages", EXPLAINED]
    words += ["--ranks", ranks or "2"]
    script = Path(path).resolve()
    working = ROOT
    if script.is_file() and not script.is_relative_to(ROOT):
        path, working = script, script.parent  # its data is there
        words += ["--logs", ROOT / "runs/onecurve"]
    words += [path, *shlex.split(flags)]
    return subprocess.run(words, cwd=working).returncode
