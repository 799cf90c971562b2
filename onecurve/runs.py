"""The three runs of a script, and what they show."""

import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from onecurve import gradients, ranks, rules
from onecurve.collectives import is_of_others_end
from onecurve.events import read_events
from onecurve.findings import finding, of_each_rank
from onecurve.rank import Task, prepare
from onecurve.seen import Seen

MOST_SECONDS = 240  # of a run
PATIENCE = 60  # seconds that a collective waits for the other ranks
TOO_SLOW = 124  # in place of an exit status


@dataclass
class Inspection:
    """What is known of a script: findings, and what was compared or could not be."""

    seen: Seen  # of the run as it is
    findings: list
    compared: int = 0  # steps whose gradients are those of one process
    not_told: list = field(default_factory=list)  # why something was not compared


def run_kind(command, kind, folder):
    """Run the script once; return what ranks.run does, and a Seen."""
    path, flags, count = command
    if kind == "one":
        count = 1
    place = folder / kind
    place.mkdir()
    here = Path.cwd()
    working = str(here if path.is_relative_to(here) else path.parent)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        task = Task(str(path), working, str(place), count, kind, scratch, PATIENCE)
        options = {"float64": kind != "watch", "prepare": (prepare, task)}
        try:
            result = ranks.run([path, *flags], count, timeout=MOST_SECONDS, **options)
        except ranks.TimedOut as error:
            result = error
            result.returncode = TOO_SLOW
    (place / "stdout").write_text(result.stdout, encoding="utf-8")
    (place / "stderr").write_text(result.stderr, encoding="utf-8")
    return result, Seen([read_events(place / f"rank{rank}") for rank in range(count)])


def failure(result, name):
    """Return a Finding for a run of a script that did not end well, or None."""
    if result.returncode in (0, TOO_SLOW):
        return None
    if not result.errors:
        error = f"exit status {result.returncode}"
        ended = [rank for rank, status in enumerate(result.statuses) if status]
        told = result.stderr.strip().splitlines()[-1:]
        return finding("fails", None, told, rank=min(ended, default=0), error=error)
    for rank, (error, line) in sorted(result.errors.items()):
        if not is_of_others_end(error):
            where = f"{name}:{line}" if line else None
            return finding("fails", where, rank=rank, error=error[:300])
    places = []
    for rank, status in enumerate(result.statuses):
        _, line = result.errors.get(rank, (None, result.places.get(rank)))
        ended = "at its end" if status == 0 else "in a library"
        places.append(f"at {name}:{line}" if line else ended)
    return finding("hang", None, of_each_rank(places))


def compare_gradients(command, folder):
    """Return (findings, steps that were equal, what could not be compared and why)."""
    for kind in "several", "one":
        result, seen = run_kind(command, kind, folder)
        problem = failure(result, command[0].name)
        reasons = [event["why"] for event in seen.of("cannot_tell")]
        if problem:
            where = "in float64" if kind == "several" else "on one rank"
            reasons.append(f"{where}, {problem.what}")
        if reasons:
            return [], 0, [f"gradients: cannot compare, since {reasons[0]}"]
    folders = folder / "several" / "steps0", folder / "one" / "steps0"
    count, found, why = gradients.compare(*folders, command[2])
    which = f"gradients after step {count}" if count else "gradients"
    not_told = [f"{which}: cannot compare, since {why}"] if why else []
    return [found] if found else [], count, not_told


def inspect(command, folder, compare=True):
    """Run a command (path, flags, ranks) and return an Inspection.

    `folder` is made anew, for what the ranks write. Unless it is to `compare`
    gradients, the script runs once only, as it is.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    result, seen = run_kind(command, "watch", folder)
    if seen.of("cannot_tell"):
        return Inspection(seen, [], not_told=[seen.of("cannot_tell")[0]["why"]])
    found = rules.findings(seen)
    problem = failure(result, command[0].name)
    if problem:
        if problem.name == "fails":  # the other ranks were ended before their time
            found = [one for one in found if rules.NO_MORE not in str(one.details)]
        return Inspection(seen, [problem, *found])
    if result.returncode == TOO_SLOW:
        steps = len(seen.of("step"))
        told = f"all but {steps} steps, in {MOST_SECONDS} s: give it smaller sizes"
        return Inspection(seen, found, not_told=[told])
    if not compare:
        return Inspection(seen, found)
    differ, compared, not_told = compare_gradients(command, folder)
    return Inspection(seen, differ + found, compared, not_told)
