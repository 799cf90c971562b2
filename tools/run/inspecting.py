"""`make inspect`: run the inspector on a script, with the tutorial's pages."""

import shlex
import subprocess
import sys

from tools.run.stages import ROOT, refuse

EXPLAINED = ROOT / "tools/run/explained.csv"  # on which pages findings are explained


def main(path, ranks, flags):
    """Inspect a script on so many ranks; return the inspector's exit status."""
    if not path:
        refuse("which script? make inspect SCRIPT=train.py")
    words = [sys.executable, "-m", "onecurve", "--pages", EXPLAINED]
    words += ["--ranks", ranks or "2", path, *shlex.split(flags)]
    return subprocess.run(words).returncode
