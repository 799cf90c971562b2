"""What a rank does before the script begins."""

import os
import sys
import tempfile
import time
from pathlib import Path

from onecurve import equal, exact, files, hooks, merged, numbers, plain, pretend, replay
from onecurve.events import Log

TOGETHER = 10  # seconds that a rank waits for the others to have seen enough


def prepare(rank, task):
    """Make this process a rank of a task; the script comes next.

    Returns what is to be called once the script has come to its end, or None.
    """
    folder = Path(task.folder)
    script = Path(task.path)
    os.chdir(task.working)
    tempfile.tempdir = task.scratch
    sys.path.insert(0, task.working if task.module else str(script.parent))
    log = Log(folder / f"rank{rank}", {str(script.parent), task.working})
    pretend.install(task.patience)
    end = Ending(folder, rank, task.ranks)
    if task.kind == "watch":
        recorder = hooks.Hooks(log, end)
        recorder.install()
    else:
        own = folder / f"steps{rank}"
        own.mkdir()
        sources = sorted(folder.parent.glob("several/steps*"))
        if task.kind == "several":
            steps = equal.Steps(log, end, own, sources)
        elif task.kind == "one":
            steps = merged.Merged(log, end, own, sources)
        else:  # whole, or such as "alone1" and "split1"
            number = rank if task.kind == "whole" else int(task.kind[5:])
            steps = replay.Alone(log, end, own, [sources[number]])
        steps.install()
        exact.install(steps.drawn, task.double)
        if task.kind != "several" and not task.kind.startswith("split"):
            plain.install()
    numbers.Numbers(log).install()
    files.Files(folder / "files", log).install()
    return recorder.script_ends if task.kind == "watch" else None


class Ending:
    """Ends this process when all ranks have seen enough, or soon after it has itself.

    A rank that only left would break the others' connections.
    """

    def __init__(self, folder, rank, ranks):
        self.folder = folder
        self.rank = rank
        self.ranks = ranks

    def __call__(self):
        """End this process; the script is not asked."""
        (self.folder / f"enough{self.rank}").mkdir(exist_ok=True)
        end = time.monotonic() + TOGETHER
        while time.monotonic() < end:
            if len(list(self.folder.glob("enough*"))) >= self.ranks:
                break
            time.sleep(0.02)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
