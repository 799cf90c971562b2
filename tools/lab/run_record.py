"""What is known of a watched run that has ended: `RunRecord`.

Nothing in here knows an exercise, or MNIST: `tools.lab.checks` does.
"""

import re
import signal
import subprocess
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

# What a rank says when another one has ended: not the error to tell.
OF_ANOTHERS_END = (
    r"(?i)Connection (closed|reset)|preamble|Broken pipe|Socket|timed? ?out"
)
OF_ANOTHERS_END += "|peer"
# PyTorch puts its own file, and what(), before a message from C++.
NOISE = r"\[[^\]]*/[^\]]*\] *|what\(\): *"

POINT_TO_POINT = "send", "recv", "isend", "irecv"


class Wrong(Exception):
    """The script is still wrong: says what was seen, and what was expected.

    `setting` is that of the run that showed it, or None.
    """

    setting = None


class Limit(Wrong):
    """The lab cannot judge this script, which may be right: says why."""


@dataclass(kw_only=True, eq=False)
class RunRecord:
    """What was recorded of a run of a script, on one rank or several."""

    events: list  # of each rank a list of dicts, as tools.lab.recorder writes them
    result: object  # what tools.run.ranks.run returned, or the TimedOut that it raised
    out: Path  # where the run was told to write
    text: str  # of the script

    @property
    def hangs(self):
        """Return whether the run took too long."""
        return isinstance(self.result, subprocess.TimeoutExpired)

    @property
    def status(self):
        """Return 0 where all ranks ended well."""
        return 1 if self.hangs else self.result.returncode

    @property
    def stdout(self):
        """Return what the ranks printed."""
        return self.result.stdout

    @property
    def ranks(self):
        """Return the numbers of the ranks."""
        return range(len(self.events))

    def of(self, kind, rank=0):
        """Return the events of a kind on a rank, in order."""
        return [event for event in self.events[rank] if event["kind"] == kind]

    def rates(self, rank=0):
        """Return the learning rate at each step of an optimizer."""
        return [event["lr"] for event in self.of("step", rank)]

    def wrappers(self, rank=0):
        """Return the names of the wrappers that training passes went through."""
        return {event["name"] for event in self.of("wrapper", rank) if event["grad"]}

    def writers(self):
        """Return which ranks wrote a file below `out`: {name: sorted list of ranks}."""
        found = {}
        for rank in self.ranks:
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
        for rank, status in enumerate(self.result.statuses):
            if rank in self.result.errors:
                _, line = self.result.errors[rank]
                what = f"failed at {self.at(line)}"
            elif status is None:
                what = f"is at {self.at(self.result.places.get(rank))}"
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
        left_out = set(POINT_TO_POINT)
        if not any(self.of("ddp", rank) for rank in self.ranks):
            left_out.add("backward")
        calls = []
        for rank in self.ranks:
            called = self.of("collective_call", rank)
            calls.append([call for call in called if call["name"] not in left_out])
        return calls

    def error(self):
        """Return in words why the run failed: an error and its line, or a status.

        An error that only says that another rank has ended is left to `whereabouts`.
        """
        statuses = self.result.statuses
        errors = self.result.errors
        own = {rank: error for rank, error in errors.items() if is_own(error)}
        if own:
            # one that ended by itself, before those that were ended meanwhile
            rank = min(own, key=lambda rank: (not statuses[rank], rank))
            text, line = own[rank]
            # the folder of the run says nothing to a person
            text = text.replace(f"{self.out.parent}/", "")
            lines = re.sub(NOISE, "", text).splitlines()
            what = lines[0][:300] if lines else ""
            if not what:
                what = f"rank {rank} {ending(statuses[rank])}"
            return f"{what}\n  at {self.at(line)}" if line else what
        for rank, status in enumerate(statuses):
            if status and rank not in errors:
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
    return not (text.startswith("RuntimeError") and re.search(OF_ANOTHERS_END, text))


def ending(status):
    """Return an exit status in words; None is one that was not waited for."""
    if not status:
        return "has come to its end"
    if status > 0:
        return f"ended with exit status {status}"
    why = ", as the system does when memory runs out" if status == -9 else ""
    return f"was killed by {signal.Signals(-status).name}{why}"
