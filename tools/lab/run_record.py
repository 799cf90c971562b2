"""What is known of a watched run that has ended: `RunRecord`.

Nothing in here knows an exercise, or MNIST: `tools.lab.checks` does.
"""

import re
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

from onecurve.collectives import first_difference, is_of_others_end
from onecurve.events import Events

# PyTorch puts its own file, and what(), before a message from C++.
NOISE = r"\[[^\]]*/[^\]]*\] *|what\(\): *"


class Wrong(Exception):
    """The script is still wrong: says what was seen, and what was expected.

    `setting` is that of the run that showed it, or None.
    """

    setting = None


class Limit(Wrong):
    """The lab cannot judge this script, which may be right: says why."""


@dataclass(kw_only=True, eq=False)
class RunRecord(Events):
    """What was recorded of a run of a script, on one rank or several."""

    events: list  # of each rank a list of dicts, as tools.lab.recorder writes them
    result: object  # what onecurve.ranks.run returned, or the TimedOut that it raised
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
        found = first_difference(self.collective_calls())
        if not found:
            return ""
        number, rank, first, other = found
        return (
            f"\nRank 0's collective call {number} is {call_at(first)}. "
            f"Rank {rank}'s call {number} is {call_at(other)}."
        )

    def error(self):
        """Return in words why the run failed: an error and its line, or a status.

        An error that only says that another rank has ended is left to `whereabouts`.
        """
        statuses = self.result.statuses
        errors = self.result.errors
        own = {}
        for rank, (text, line) in errors.items():
            if not is_of_others_end(text):
                own[rank] = text, line
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


def call_at(call):
    """Return the name, the numbers and the line of a call of a collective in words."""
    if call is None:
        return "missing"
    numbers = f" of {call['numbers']} numbers" if call["numbers"] else ""
    return f"{call['name']}{numbers} at line {call['line']}"


def ending(status):
    """Return an exit status in words; None is one that was not waited for."""
    if not status:
        return "has come to its end"
    if status > 0:
        return f"ended with exit status {status}"
    why = ", as the system does when memory runs out" if status == -9 else ""
    return f"was killed by {signal.Signals(-status).name}{why}"
