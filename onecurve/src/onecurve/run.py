"""One of the runs of a script."""

import shutil
import signal
import tempfile
from pathlib import Path
from typing import NamedTuple

from onecurve import ranks
from onecurve.failures import ended_silently, ending, own_error
from onecurve.findings import finding, of_each_rank
from onecurve.seen import Seen, read_ranks
from onecurve.supervisor import OWN_FAULT

MOST_SECONDS = 240  # that a rank may compute
PATIENCE = 60  # seconds that a collective waits for the other ranks
IDLE = 90  # seconds in which no rank computes: more than a collective waits
PREPARE = "onecurve.rank:prepare"  # by its name: it imports PyTorch


class Command(NamedTuple):
    """What is inspected."""

    path: Path  # of the script, absolute
    flags: list  # of the script
    ranks: int  # at least 2
    module: str | None = None  # its name, where it is to run as by `python -m`
    double: bool = True  # whether gradients are compared in float64, or as they are
    cuts: bool = True  # whether an evaluation ends after some batches
    lengths: bool = True  # whether an epoch goes on if ranks have unequal numbers


class Task(NamedTuple):
    """How a script is looked at; the same on all ranks."""

    command: Command  # with the number of ranks of this run
    kind: str  # watch, several, wider, one, whole, or alone or split and a rank
    folder: Path  # where the ranks write what they see
    working: Path  # the folder in which the script runs
    scratch: str  # for temporary files
    patience: float  # seconds that a collective waits for the other ranks


def run_kind(command, kind, folder):
    """Run the script once; return what ranks.run does, and a Seen.

    Where a rank crashes, it is run a second time: gloo's own thread does, now and then,
    whatever the script is, and a script's own code will again.
    """
    if kind == "wider":
        command = command._replace(ranks=command.ranks + 1)
    elif kind not in ("watch", "several", "whole"):
        command = command._replace(ranks=1)
    place = folder / kind
    result = run_in(place, command, kind)
    if -signal.SIGSEGV in result.statuses:
        shutil.rmtree(place)
        result = run_in(place, command, kind)
    return result, Seen(read_ranks(place, command.ranks))


def run_in(place, command, kind):
    """Run the script in a new folder, where its ranks write; return the Result."""
    path, flags, count, module, double, *_ = command
    place.mkdir()
    here = Path.cwd()
    working = here if module or path.is_relative_to(here) else path.parent
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        task = Task(command, kind, place, working, scratch, PATIENCE)
        options = {"module": module, "prepare": (PREPARE, task)}
        options["timeout"] = MOST_SECONDS
        options["idle"] = IDLE
        options["float64"] = double and kind != "watch"
        result = ranks.run([path, *flags], count, **options)
    (place / "stdout").write_text(result.stdout, encoding="utf-8")
    (place / "stderr").write_text(result.stderr, encoding="utf-8")
    return result


def own_fault(result):
    """Return an error that was raised inside onecurve, or None."""
    for told, _ in result.errors.values():
        if told.startswith(OWN_FAULT):
            return told
    return None


def failure(result, name):
    """Return a Finding for a run of a script that did not end well, or None."""
    if result.late or not result.returncode:
        return None
    own = own_error(result)
    if own:
        rank, error, line = own
        where = f"{name}:{line}" if line else None
        error = error or last_line(result.stderrs[rank])  # of argparse, say
        return finding("fails", where, rank=rank, error=error[:300])
    rank = ended_silently(result)
    if rank is not None:
        last = last_line(result.stderrs[rank])
        told = [last] if last else []
        error = ending(result.statuses[rank])
        return finding("fails", None, told, rank=rank, error=error)
    places = []
    for rank, status in enumerate(result.statuses):
        _, line = result.errors.get(rank, (None, result.places.get(rank)))
        ended = "finished" if status == 0 else "in library code"
        places.append(f"at {name}:{line}" if line else ended)
    return finding("hang", None, of_each_rank(places))


def last_line(text):
    """Return the last line of a text; of an empty one, an empty one."""
    return (text.strip().splitlines() or [""])[-1]
