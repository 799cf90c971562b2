"""Run a script once."""

import math
import re
import shutil
import signal
import tempfile
from pathlib import Path
from textwrap import shorten
from typing import NamedTuple

from onecurve.evidence.found import of_each_rank
from onecurve.evidence.origins import UNORDERED
from onecurve.evidence.seen import Seen, read_ranks
from onecurve.evidence.splits import mark_split
from onecurve.feed.kinds import kind_of
from onecurve.rules import finding
from onecurve.start import ranks
from onecurve.start.failures import ended_silently, ending, is_of_others_end, own_error
from onecurve.watch.one_rank_blocks import blocks_of_one
from onecurve.wording import some

MOST_SECONDS = 240  # of computing per rank
MOST_MINUTES = 10  # of all runs together, after which no further run starts
PATIENCE = 60  # seconds until a collective times out
ALONE = "calls a collective that the other ranks do not call here"
IDLE = 90  # seconds without computing on any rank; more than PATIENCE
NAMES = r'(?s)Missing key.*?"(.*?)".*Unexpected key.*?"([\w.]*\1)"'
PREFIX = "names differ by a prefix: {1} in the file, {0} in the model"
UNUSED = r"did not receive grad for rank \d+: ([\d ]+)"  # in DDP's error
USE = "use these parameters in the loss, or pass find_unused_parameters=True to DDP"
# Errors of what replaces GPUs and NCCL.
OF_STAND_INS = r"(?i)cuda|nvidia|nccl|triton|gloo (does not|doesn't)"
# Errors, and files of functions that raise them, of what only several ranks need.
OF_PARALLEL = "DistributedDataParallel|FullyShard|FSDP|DTensor|process group"
OF_PARALLEL += "|torch/distributed/|torch/nn/parallel/"
PREPARE = "onecurve.feed.rank:prepare"  # by name because it imports PyTorch


class Command(NamedTuple):
    """A script to inspect."""

    path: Path  # absolute
    flags: list  # of the script
    ranks: int  # at least 2
    module: str | None = None  # its name, if run as `python -m` does
    double: bool = True  # whether to compare gradients in float64
    cuts: bool = True  # whether to cut epochs and evaluations short
    until: float = math.inf  # time after which no further run starts
    lengths: dict = {}  # noqa: RUF012, {rank: lengths of loaders to tell one process}


class Task(NamedTuple):
    """How to run a script; the same on all ranks."""

    command: Command  # with this run's number of ranks
    kind: str  # a key of KINDS, after alone and split with a rank
    folder: Path  # where the ranks write events
    working: Path  # the script's working directory
    scratch: str  # for temporary files
    patience: float  # seconds until a collective times out


def run_kind(command, kind, folder):
    """Run the script; return its Result and a Seen.

    Retry after a segmentation fault: gloo's thread crashes now and then in any script.
    """
    if kind_of(kind)[0].ranks == "one":
        command = command._replace(ranks=1)
    place = folder / kind
    result = run_in(place, command, kind)
    if -signal.SIGSEGV in result.statuses:
        result = run_in(place, command, kind)
    if kind_of(kind)[0].in_float64:
        shutil.rmtree(place / "files", ignore_errors=True)  # nothing reads them
    seen = Seen(read_ranks(place, command.ranks))
    mark_split(seen)
    return result, seen


def run_in(place, command, kind):
    """Run the script, whose ranks write to an emptied folder; return the Result."""
    path, flags, count, module, double, *_ = command
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        task = Task(command, kind, place, Path.cwd(), scratch, PATIENCE)
        options = {"module": module, "prepare": (PREPARE, task)}
        options |= {"timeout": MOST_SECONDS, "idle": IDLE}
        texts = (one.read_text(errors="replace") for one in path.parent.glob("*.py"))
        unordered = any(re.search(UNORDERED, text) for text in texts)
        options["fresh"] = kind == "watch" and unordered
        options["float64"] = double and kind_of(kind)[0].in_float64
        result = ranks.run([path, *flags], count, **options)
    (place / "stdout").write_text(result.stdout, encoding="utf-8")
    (place / "stderr").write_text(result.stderr, encoding="utf-8")
    return result


def failure(result, path, seen):
    """Return a Finding for the failed run of a script, or None."""
    name = path.name
    if result.late or not result.returncode:
        return None
    own = own_error(result)
    if own:
        rank, error, line = own
        where = f"{name}:{line}" if line else None
        error = error or last_line(result.stderrs[rank])  # such as argparse's
        told = [PREFIX.format(*names) for names in re.findall(NAMES, error)]
        unused = re.search(UNUSED, error)
        wrapped = seen.of("ddp", rank)
        if unused and len(wrapped) == 1:
            names = [wrapped[0]["names"][int(one)] for one in unused[1].split()]
            told.append(f"without a gradient: {some(names)}")
        facts = {"rank": rank, "error": shorten(error, 1200)}
        return finding("fails", where, told, fix=USE if unused else None, **facts)
    died = ended_silently(result)
    places, alone = [], []
    for rank, status in enumerate(result.statuses):
        lines, _ = result.ways.get(rank, ((), ()))
        alone += [one for one in lines if of_one(path, one)][:1]
        ended = "finished" if status == 0 else "in library code"
        line = next(iter(lines), None)
        places.append(f"at {name}:{line}" if line else ended)
        for call in seen.of("collective_call", rank)[-1:] if died is not None else []:
            places[-1] += f", last {call['name']} at {call['line']}"
    if died is None:
        told = of_each_rank(places) + [of_one(path, line) for line in alone[:1]]
        return finding("hang", f"{name}:{alone[0]}" if alone else None, told)
    why = last_line(result.stderrs[died])
    line = result.places.get(died)
    told = [why] if why else []
    told += of_each_rank(places) if line else []
    error = ending(result.statuses[died])
    if alone:
        told.append(of_one(path, alone[0]))
        if is_of_others_end(f"RuntimeError: {why}"):
            error = f"{ALONE} ({error})"
    return finding("fails", line and f"{name}:{line}", told, rank=died, error=error)


def apart_from_ranks(problem, result, command, folder):
    """Return how a run failed if that says nothing about several ranks, or None.

    It doesn't if our stand-ins for GPUs can't do something, if memory runs out, or if
    one process fails alike, except if PyTorch's parallel part raised the error.
    """
    if problem.name != "fails":
        return None
    rank, error = problem.facts["rank"], problem.facts["error"]
    told = f"{problem.line}: {problem.what}" if problem.line else problem.what
    if re.search(OF_STAND_INS, error) or result.statuses[rank] == -signal.SIGKILL:
        return f"{told}, which may not happen on GPUs"
    _, called = result.ways.get(rank, ((), ()))
    if problem.details or re.search(OF_PARALLEL, f"{error} {called[:1]}"):
        return None
    alone, seen = run_kind(command._replace(ranks=1), "watch", folder / "single")
    other = failure(alone, command.path, seen)
    kind = error.partition(":")[0]
    alike = other and other.line == problem.line
    alike = alike and other.facts.get("error", "").startswith(kind)
    return f"{told}, and one process fails alike" if alike else None


def of_one(path, line):
    """Return a detail if only one rank executes a line, or None."""
    for first, end in blocks_of_one(str(path)):
        if line and first <= line <= end:
            return f"only one rank executes lines {first} to {end}"
    return None


def last_line(text):
    """Return a string's last line, or an empty string."""
    return (text.strip().splitlines() or [""])[-1]
