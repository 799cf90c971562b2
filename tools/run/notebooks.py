"""`make notebooks`: copy the companion notebooks into workshop/ and open them."""

import os
import shlex
import shutil
import sys

from tools.run.stages import ROOT

COPIES = ROOT / "workshop"


def main(flags):
    """Copy missing notebooks, then become JupyterLab with extra flags."""
    COPIES.mkdir(exist_ok=True)
    for path in sorted((ROOT / "notebooks").glob("[0-9]*.ipynb")):
        copy = COPIES / path.name
        if copy.exists():
            print(f"workshop/{path.name} is as you left it", flush=True)
        else:
            shutil.copy(path, copy)
    words = [sys.executable, "-m", "jupyterlab", f"--ServerApp.root_dir={ROOT}"]
    words += ["--allow-root", "--LabApp.default_url=/lab/tree/workshop"]
    os.execv(sys.executable, [*words, *shlex.split(flags)])
