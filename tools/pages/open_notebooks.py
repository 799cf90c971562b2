"""Open copies of the notebooks in JupyterLab: `python -m tools.pages.open_notebooks`.

The copies are in workshop/, which git ignores. A copy that is there already is kept.
It is as deep as the original, so the same links lead to the stages.
"""

import os
import shlex
import shutil
import sys

from tools.run.stages import ROOT, STAGES, refuse

FOLDER = ROOT / "notebooks"
COPIES = ROOT / "workshop"


def copy():
    """Copy the notebooks that are not there yet, and print the names of the others."""
    COPIES.mkdir(exist_ok=True)
    for stage in STAGES:
        path = COPIES / f"{stage}.ipynb"
        if path.exists():
            print(f"{COPIES.name}/{path.name} is as you left it", flush=True)
        else:
            shutil.copyfile(FOLDER / path.name, path)


def command(flags):
    """Return the words that start JupyterLab, with further flags of its own."""
    words = [sys.executable, "-m", "jupyterlab", f"--ServerApp.root_dir={ROOT}"]
    words.append(f"--LabApp.default_url=/lab/tree/{COPIES.name}")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        words.append("--allow-root")
    return words + flags


if __name__ == "__main__":
    try:
        words = command(shlex.split(os.environ.get("ARGS", "")))
        copy()
    except ValueError as error:
        refuse(f"ARGS: {error}")
    except OSError as error:
        refuse(f"cannot write {COPIES}: {error.strerror}")
    os.execv(words[0], words)
