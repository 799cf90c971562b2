"""What a rank does before the script begins."""

import os
import sys
import tempfile
import time

from onecurve import equal, exact, files, hooks, merged, numbers, plain, pretend, replay
from onecurve.events import Log
from onecurve.kept import in_name

TOGETHER = 10  # seconds that a rank waits for the others to have seen enough


def prepare(rank, task):
    """Make this process a rank of a task; the script comes next.

    Returns what is to be called once the script has come to its end, or None.
    """
    command, kind, folder, working, scratch, patience = task
    parent = command.path.parent
    os.chdir(working)
    tempfile.tempdir = scratch
    sys.path.insert(0, str(working if command.module else parent))
    log = Log(folder / f"rank{rank}", {str(parent), str(working)})
    pretend.install(patience)
    end = Ending(folder, rank, command.ranks)
    if kind == "watch":
        recorder = hooks.Hooks(log, end)
        recorder.keeps_lengths = command.lengths
        recorder.install()
    else:
        own = folder / f"steps{rank}"
        own.mkdir()
        sources = sorted(folder.parent.glob("several/steps*"))
        if kind in ("several", "wider"):
            recorder = equal.Steps(log, end, own, sources)
        elif kind in ("one", "woven"):
            recorder = merged.Merged(log, end, own, sources)
            recorder.draws.woven = kind == "woven"
        else:  # whole, or such as "alone1" and "split1"
            number = rank if kind == "whole" else int(kind[5:])
            recorder = replay.Alone(log, end, own, [sources[number]])
        recorder.install()
        exact.install(recorder.draw, recorder.drawing, command.double)
        if kind not in ("several", "wider") and not kind.startswith("split"):
            plain.install()
    recorder.cuts = command.cuts
    numbers.Numbers(log).install()
    files.Files(folder / "files", log).install()
    return recorder.script_ends if kind == "watch" else None


class Ending:
    """Ends this process when all ranks have seen enough, or soon after it has itself.

    A rank that only left would break the others' connections.
    """

    def __init__(self, folder, rank, ranks):
        self.folder = folder
        self.rank = rank
        self.ranks = ranks

    def note_length(self, line, number, batches):
        """Let all ranks know how many batches this one has in an epoch of a loader."""
        name = f"length-{in_name(line)}-{number}-{self.rank}"
        (self.folder / name).write_text(str(batches))

    def lengths(self, line, number):
        """Return the ranks' numbers of batches in an epoch; [] if one is not known."""
        paths = list(self.folder.glob(f"length-{in_name(line)}-{number}-*"))
        known = [int(path.read_text() or 0) for path in paths]
        return known if len(known) == self.ranks and all(known) else []

    def note_evaluation(self, steps):
        """Let all ranks know that one evaluates after so many steps: rank 0, mostly."""
        (self.folder / f"evaluated{steps}").mkdir(exist_ok=True)

    def has_evaluated(self, steps):
        """Return whether a rank has evaluated before the latest of so many steps.

        Whether it does after that, a rank that is ahead knows before the others: and
        all are to end after the same step.
        """
        return any((self.folder / f"evaluated{one}").exists() for one in range(steps))

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
