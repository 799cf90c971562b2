"""Set up a rank before its script starts."""

import os
import sys
import tempfile
import time

from onecurve.feed.kinds import kind_of
from onecurve.feed.merged_batches import MergedBatches
from onecurve.feed.own_batches import OwnBatches
from onecurve.feed.replayed_rank import ReplayedRank
from onecurve.feed.states import States
from onecurve.feed.step_recorder import StepBudget, StepRecorder
from onecurve.set_up import cpu_for_cuda, float64, unsharded
from onecurve.watch import output_files, printed_numbers
from onecurve.watch.budget import Budget
from onecurve.watch.events import Log
from onecurve.watch.listeners import listen
from onecurve.watch.losses import Losses
from onecurve.watch.script import Script

SUPPLIES = {"own": OwnBatches, "merged": MergedBatches, "replayed": ReplayedRank}
TOGETHER = 10  # seconds that a finished rank waits for other ranks


def prepare(rank, task):
    """Set up a rank of a task; return a function to call after the script, or None."""
    command, name, folder, working, scratch, patience = task
    kind, number = kind_of(name)
    parent = command.path.parent
    os.chdir(working)
    tempfile.tempdir = scratch
    sys.path.insert(0, str(working if command.module else parent))
    log = Log(folder / f"rank{rank}", {str(parent), str(working)})
    cpu_for_cuda.install(patience)
    end = Ending(folder, rank, command.ranks)
    script = Script(log, end)
    if kind.in_float64:
        own = folder / f"steps{rank}"
        own.mkdir()
        sources = sorted(folder.parent.glob("several/steps*"))
        which = rank if number is None else number  # of the ranks
        if kind.feed == "replayed":
            sources = [sources[which]]
        supply = SUPPLIES[kind.feed](script, own, sources)
        supply.lengths = command.lengths.get(which, {})
        states = States(script)
        each_pass = kind.feed == "replayed"
        recorder = StepRecorder(script, supply, states, each_pass)
        listen(script, supply, StepBudget(script, command.cuts), [recorder, states])
        float64.install(supply.draw, supply.drawing, states.follow, command.double)
        if not kind.is_sharded:
            unsharded.install()
    else:
        budget = Budget(script, command.cuts)
        listen(script, budget=budget, more=[Losses(script)])
    printed_numbers.PrintedNumbers(log).install()
    output_files.OutputFiles(folder / "files", log).install()
    return None if kind.in_float64 else script.ends


class Ending:
    """Ends this process with all others, whose connections would break otherwise."""

    def __init__(self, folder, rank, ranks):
        self.folder = folder
        self.rank = rank
        self.ranks = ranks

    def note_evaluation(self, steps):
        """Tell all ranks that one, mostly rank 0, evaluates after `steps` steps."""
        (self.folder / f"evaluated{steps}").mkdir(exist_ok=True)

    def has_evaluated(self, steps):
        """Return whether any rank evaluated before the latest step.

        Only a rank that is ahead knows about later ones, but all must end alike.
        """
        return any((self.folder / f"evaluated{one}").exists() for one in range(steps))

    def __call__(self):
        """End this process without returning to the script."""
        (self.folder / f"enough{self.rank}").mkdir(exist_ok=True)
        end = time.monotonic() + TOGETHER
        while time.monotonic() < end:
            if len(list(self.folder.glob("enough*"))) >= self.ranks:
                break
            time.sleep(0.02)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
