"""Open copies of the notebooks in JupyterLab: `python -m tools.pages.open_notebooks`.

The copies are in workshop/, which git ignores. A copy that is there already is kept.
It is as deep as the original, so the same links lead to the stages. Further words go to
JupyterLab.
"""

import os
import shutil
import sys

from tools.run.stages import ROOT, STAGES

COPIES = ROOT / "workshop"
LAB = [sys.executable, "-m", "jupyterlab", f"--ServerApp.root_dir={ROOT}"]
LAB += ["--LabApp.default_url=/lab/tree/workshop", "--allow-root"]


def copy():
    """Copy the notebooks that are not there yet, and print the names of the others."""
    COPIES.mkdir(exist_ok=True)
    for stage in STAGES:
        path = COPIES / f"{stage}.ipynb"
        if path.exists():
            print(f"workshop/{path.name} is as you left it", flush=True)
        else:
            shutil.copyfile(ROOT / "notebooks" / path.name, path)


if __name__ == "__main__":
    copy()
    os.execv(sys.executable, [*LAB, *sys.argv[1:]])
