"""What the lab knows of a run that has ended: `RunRecord`, which the checks judge."""

import re
import signal
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

from tools.lab.setting import Setting

# What a rank says when another one has gone: not the error to tell.
GONE = r"(?i)Connection (closed|reset)|preamble|Broken pipe|Socket|timed? ?out|peer"
# PyTorch puts its own file, and what(), before a message from C++.
NOISE = r"\[[^\]]*/[^\]]*\] *|what\(\): *"

POINT_TO_POINT = "send", "recv", "isend", "irecv"


@dataclass(kw_only=True, eq=False)
class RunRecord:
    """What was recorded of a run of a script, on one rank or several."""

    events: list  # of each rank a list of dicts, as tools.lab.recorder writes them
    status: int  # 0 where all ranks ended well
    hangs: bool  # did it take too long?
    statuses: list  # of each rank: its exit status; None where it had to be ended
    errors: dict  # rank -> (text, line of the script or None), as tools.run.ranks says
    places: dict  # rank -> line of the script that it was at when it was ended
    setting: Setting  # how the script was run
    stdout: str = ""
    stderr: str = ""
    rows: list = field(default_factory=list)  # metrics.csv: (loss, correct, total)
    weights: dict | None = None  # model.pth
    needs_gpu: bool = False  # is model.pth saved as on a GPU?
    unread: dict = field(default_factory=dict)  # of those two: name -> why not read
    out: Path | None = None  # where the run was told to write
    path: str = ""  # of the script
    text: str = ""  # of the script

    @property
    def count(self):
        """Return how many epochs the run was to train."""
        return self.setting.epochs - self.setting.resume

    def of(self, kind, rank=0):
        """Return the events of a kind on a rank, in order."""
        return [event for event in self.events[rank] if event["kind"] == kind]

    def passes(self, rank=0, train=True):
        """Return the indices of the images that reached the network: a list per pass.

        With `train`, the training images of passes with gradients. Otherwise the test
        images of all passes.
        """
        found = []
        for event in self.of("pass", rank):
            if event["grad"] or not train:
                images = [i for is_train, i in event["images"] if is_train == train]
                if images:
                    found.append(images)
        return found

    def epochs(self, rank=0, train=True):
        """Return `passes` as one list per epoch: each epoch has as many passes.

        The list is empty where a rank had no passes. It has another length than the
        number of epochs where that does not divide the number of passes.
        """
        passes = self.passes(rank, train)
        size = len(passes) // self.count or 1
        return [passes[n : n + size] for n in range(0, len(passes), size)]

    def rates(self, rank=0):
        """Return the learning rate at each step of an optimizer."""
        return [event["lr"] for event in self.of("step", rank)]

    def wrapped(self, rank=0):
        """Return the names of the wrappers that training passes went through."""
        return {event["name"] for event in self.of("wrapper", rank) if event["grad"]}

    def writers(self):
        """Return which ranks wrote a file below `out`: {name: sorted list of ranks}."""
        found = {}
        for rank in range(len(self.events)):
            for event in self.of("write", rank):
                path = Path(event["path"])
                if path.is_absolute() and path.is_relative_to(self.out):
                    found.setdefault(path.name, set()).add(rank)
        return {name: sorted(ranks) for name, ranks in sorted(found.items())}

    def at(self, line):
        """Return a line of the script in words, given its number or None."""
        lines = self.text.splitlines()
        if not line or line > len(lines):
            return "no line of the script: before the first or after the last"
        return f"line {line}: {lines[line - 1].strip()}"

    def whereabouts(self):
        """Return a line for each rank: where it was when the run was ended."""
        text = ""
        for rank, status in enumerate(self.statuses):
            if rank in self.errors:
                _, line = self.errors[rank]
                what = f"failed at {self.at(line)}"
            elif status is None:
                what = f"is at {self.at(self.places.get(rank))}"
            else:
                what = ending(status)
            text += f"\n  rank {rank} {what}"
        return text + self.first_mismatched_collective()

    def first_mismatched_collective(self):
        """Return in words where two ranks first called different collectives, or ''."""
        calls = self.collective_calls()
        for rank in range(1, len(calls)):
            pairs = zip_longest(calls[0], calls[rank])
            for number, (first, other) in enumerate(pairs, start=1):
                if first is None:
                    return calls_more(rank, other, number, 0)
                if other is None:
                    return calls_more(0, first, number, rank)
                if first["name"] != other["name"]:
                    return (
                        f"\nRank 0's collective call {number} is {call_at(first)}. "
                        f"Rank {rank}'s call {number} is {call_at(other)}."
                    )
        return ""

    def collective_calls(self):
        """Return for each rank a list of events, one per call of a collective.

        The backward pass is among them where the script uses DDP. Messages between two
        ranks are not: where one sends, the other receives.
        """
        ranks = range(len(self.events))
        left_out = set(POINT_TO_POINT)
        if not any(self.of("ddp", rank) for rank in ranks):
            left_out.add("backward")
        calls = []
        for rank in ranks:
            called = self.of("collective_call", rank)
            calls.append([call for call in called if call["name"] not in left_out])
        return calls

    def error(self):
        """Return in words why the run failed: an error and its line, or a status.

        An error that only says that another rank has gone is left to `whereabouts`.
        """
        own = {rank: error for rank, error in self.errors.items() if is_own(error)}
        if own:
            # one that ended by itself, before those that were ended meanwhile
            rank = min(own, key=lambda rank: (not self.statuses[rank], rank))
            text, line = own[rank]
            if self.out:  # the lab's own folder says nothing to the learner
                text = text.replace(f"{self.out.parent}/", "")
            lines = re.sub(NOISE, "", text).splitlines()
            what = lines[0][:300] if lines else ""
            if not what:
                what = f"rank {rank} {ending(self.statuses[rank])}"
            return f"{what}\n  at {self.at(line)}" if line else what
        for rank, status in enumerate(self.statuses):
            if status and rank not in self.errors:
                return f"rank {rank} {ending(status)}{self.whereabouts()}"
        return f"the ranks did not meet.{self.whereabouts()}"


def calls_more(rank, call, number, other):
    """Return in words that another rank has not made a rank's n-th collective call."""
    times = number - 1
    told = {0: "no collective call", 1: "only 1 call"}.get(times, f"only {times} calls")
    return (
        f"\nRank {rank}'s collective call {number} is {call_at(call)}. "
        f"Rank {other} has made {told}."
    )


def call_at(call):
    """Return the name and the line of a call of a collective in words."""
    return f"{call['name']} at line {call['line']}"


def is_own(error):
    """Return whether an error (text, line) is this rank's, not due to another's end."""
    text, _ = error
    if text.startswith("torch.distributed.Dist"):
        return False
    return not (text.startswith("RuntimeError") and re.search(GONE, text))


def ending(status):
    """Return an exit status in words; None is one that was not waited for."""
    if not status:
        return "has come to its end"
    if status > 0:
        return f"ended with exit status {status}"
    why = ", as the system does when memory runs out" if status == -9 else ""
    return f"was killed by {signal.Signals(-status).name}{why}"
