"""The three runs of a script, and what they show."""

import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from tools.inspect import equal, rules
from tools.inspect.rank import STALLED, Task, prepare
from tools.inspect.seen import Finding, Seen
from tools.run import ranks
from tools.watch.events import read_events

MOST_SECONDS = 240  # of a run
TOO_SLOW = 124  # in place of an exit status


@dataclass
class Inspection:
    """What is known of a script: findings, and what was compared or could not be."""

    seen: Seen  # of the run as it is
    findings: list
    compared: int = 0  # steps whose gradients are those of one process
    not_told: list = field(default_factory=list)  # why something was not compared


def run_kind(command, kind, folder):
    """Run the script once; return what ranks.run does, and the ranks' events."""
    path, flags, count = command
    if kind == "one":
        count = 1
    place = folder / kind
    place.mkdir()
    here = Path.cwd()
    working = here if path.is_relative_to(here) else path.parent
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        task = Task(str(path), str(working), str(place), count, kind, scratch)
        options = {"float64": kind != "watch", "prepare": (prepare, task)}
        try:
            result = ranks.run([path, *flags], count, timeout=MOST_SECONDS, **options)
        except ranks.TimedOut as error:
            result = error
            result.returncode = TOO_SLOW
    (place / "stdout").write_text(result.stdout)
    (place / "stderr").write_text(result.stderr)
    return result, [read_events(place / f"rank{rank}") for rank in range(count)]


def victim(error):
    """Return whether a rank failed only since another had ended before."""
    return "gloo" in error[0]


def failure(result, seen, path):
    """Return a Finding for a run that did not end well, or None."""
    if result.returncode in (0, TOO_SLOW):
        return None
    if result.returncode == STALLED:
        details = []
        for rank in seen.ranks:
            events = seen.of("stalled", rank)
            where = events[0]["line"] if events else None
            if not where and result.places.get(rank):
                where = f"{path.name}:{result.places[rank]}"
            details.append(f"rank {rank} is at {where or 'a line of a library'}")
        return Finding("ERROR", "the run hangs", None, details)
    if result.errors:
        rank = min(result.errors, key=lambda one: victim(result.errors[one]))
        error, line = result.errors[rank]
        where = f"{path.name}:{line}" if line else None
        return Finding("ERROR", f"rank {rank} fails: {error[:300]}", where)
    told = f"a rank ends with exit status {result.returncode}"
    return Finding("ERROR", told, None, result.stderr.strip().splitlines()[-1:])


def compare_gradients(command, folder):
    """Return (findings, steps that were equal, why it could not be told)."""
    for kind in "several", "one":
        result, events = run_kind(command, kind, folder)
        seen = Seen(events)
        problem = failure(result, seen, command[0])
        reasons = [event["why"] for event in seen.of("cannot_tell")]
        if problem:
            where = "in float64" if kind == "several" else "on one rank"
            reasons.append(f"{where}, {problem.what}")
        if reasons:
            return [], 0, [f"gradients: cannot compare, since {reasons[0]}"]
    steps = [folder / "several" / "steps0", folder / "one" / "steps0"]
    count, difference, why = equal.compare(*steps)
    if why:
        return [], count, [f"gradients: cannot compare, since {why}"]
    if difference:
        return [gradient_finding(command[2], difference)], 0, []
    return [], count, [] if count else ["gradients: on one rank, it takes no step"]


def gradient_finding(count, difference):
    """Return a Finding for gradients that differ."""
    names = difference["names"]
    details = []
    cosine = difference["cosine"]
    ratio = difference["ratio"]
    if cosine is None:
        details.append(f"a gradient is missing in one of them: {names[0]}")
    elif 1 - cosine < equal.PARALLEL:
        told = f"direction equal, length {ratio:.6f}"
        if abs(ratio * count - 1) < 1e-3:
            told += f": a factor of {count}, the world size, is missing"
        elif abs(ratio / count - 1) < 1e-3:
            told += ": they are added up, not averaged"
        details.append(told)
    else:
        details.append(f"cosine {cosine:.6f}, length {ratio:.6f}")
    if len(names) < difference["of"]:
        details.append(f"{len(names)} of {difference['of']} parameters: {names[0]} ...")
    what = f"{count} ranks do not compute the gradient of 1"
    return Finding("ERROR", what, difference["line"], details)


def inspect(command, folder, gradients=True):
    """Run a command (path, flags, ranks) and return an Inspection.

    `folder` is made anew, for what the ranks write; without `gradients`, the script
    runs once only, as it is.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    result, events = run_kind(command, "watch", folder)
    seen = Seen(events)
    found = rules.findings(seen)
    problem = failure(result, seen, command[0])
    if problem:
        if result.returncode != STALLED:  # the others were ended before their time
            found = [one for one in found if rules.NO_MORE not in str(one.details)]
        return Inspection(seen, [problem, *found])
    if result.returncode == TOO_SLOW:
        steps = len(seen.of("step"))
        told = f"all but {steps} steps, in {MOST_SECONDS} s: give it smaller sizes"
        return Inspection(seen, found, not_told=[told])
    if not gradients:
        return Inspection(seen, found)
    differ, compared, not_told = compare_gradients(command, folder)
    return Inspection(seen, differ + found, compared, not_told)
