"""Open the companion notebooks in JupyterLab: `python -m tools.pages.open_notebooks`.

As copies in workshop/, which git ignores, so a run leaves the repository as it was. They
are as deep as the originals: the same links lead to the stages.
"""

import os
import shlex
import shutil
import sys

from tools.pages.build_notebooks import FOLDER
from tools.run.stages import ROOT, STAGES, refuse

COPIES = ROOT / "workshop"


def copy():
    """Copy the notebooks that are not there yet; return the names of those that were."""
    COPIES.mkdir(exist_ok=True)
    there = [stage for stage in STAGES if (COPIES / f"{stage}.ipynb").exists()]
    for stage in STAGES:
        if stage not in there:
            shutil.copyfile(FOLDER / f"{stage}.ipynb", COPIES / f"{stage}.ipynb")
    return there


def command(flags):
    """Return the words that start JupyterLab, with further flags of its own."""
    root = ["--allow-root"] if getattr(os, "geteuid", lambda: 1)() == 0 else []
    return [
        sys.executable,
        "-m",
        "jupyterlab",
        f"--ServerApp.root_dir={ROOT}",
        f"--LabApp.default_url=/lab/tree/{COPIES.name}",
        *root,
        *flags,
    ]


if __name__ == "__main__":
    try:
        flags, there = shlex.split(os.environ.get("ARGS", "")), copy()
    except ValueError as error:
        refuse(f"ARGS: {error}")
    except OSError as error:
        refuse(f"cannot write {COPIES}: {error.strerror}")
    if there:
        print(
            f"Yours, as you left them: {', '.join(there)}. To begin one anew, delete it "
            f"in {COPIES.name}/ first.",
            flush=True,
        )
    words = command(flags)
    os.execv(words[0], words)
