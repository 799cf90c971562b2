"""The three runs of a script, and what they show."""

import shutil
from dataclasses import dataclass, field
from pathlib import Path

from tools.inspect import equal, rules
from tools.inspect.rank import STALLED, Task, prepare
from tools.run import ranks
from tools.watch.events import read_events

MOST_SECONDS = 240  # of a run


@dataclass
class Inspection:
    """What is known of a script: findings, and what was compared or could not be."""

    seen: rules.Seen  # of the run as it is
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
    task = Task(str(path), str(working), str(place), count, kind)
    words = [path, *flags]
    try:
        result = ranks.run(
            words,
            count,
            float64=kind != "watch",
            timeout=MOST_SECONDS,
            prepare=(prepare, task),
        )
    except ranks.TimedOut as error:
        result = error
        result.returncode = STALLED
    (place / "stdout").write_text(result.stdout)
    (place / "stderr").write_text(result.stderr)
    return result, [read_events(place / f"rank{rank}") for rank in range(count)]


def failure(result, seen):
    """Return a Finding for a run that did not end well, or None."""
    if result.returncode == 0:
        return None
    stalled = [seen.of("stalled", rank) for rank in seen.ranks]
    if result.returncode == STALLED:
        details = []
        for rank, events in enumerate(stalled):
            where = events[0]["line"] if events else result.places.get(rank)
            details.append(f"rank {rank} is at {where}")
        return rules.Finding("ERROR", "the run hangs", None, details)
    own = result.errors or {0: (result.stderr.strip().splitlines() or [""])[-1:]}
    rank = min(own)
    error = own[rank]
    what = f"the run fails on rank {rank}: {str(error[0])[:300]}"
    line = error[1] if len(error) > 1 else None
    return rules.Finding("ERROR", what, f"line {line}" if line else None)


def compare_gradients(command, folder):
    """Return (findings, steps that were equal, why it could not be told)."""
    for kind in "several", "one":
        result, events = run_kind(command, kind, folder)
        problem = failure(result, rules.Seen(events))
        if problem:
            where = "float64" if kind == "several" else "on one rank"
            return [], 0, [f"gradients: {where}, {problem.what}"]
    steps = [folder / "several" / "steps0", folder / "one" / "steps0"]
    count, difference, why = equal.compare(*steps)
    if why:
        return [], 0, [f"gradients: cannot compare, since {why}"]
    if difference is None:
        none = [] if count else ["gradients: no step was taken"]
        return [], count, none
    return [gradient_finding(command[2], difference)], 0, []


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
    return rules.Finding("ERROR", what, difference["line"], details)


def inspect(command, folder, gradients=True):
    """Run a command (path, flags, ranks) and return an Inspection.

    `folder` is made anew, for what the ranks write; without `gradients`, the script
    runs once only, as it is.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    result, events = run_kind(command, "watch", folder)
    seen = rules.Seen(events)
    found = rules.findings(seen)
    problem = failure(result, seen)
    if problem:
        return Inspection(seen, [problem, *found])
    if not gradients:
        return Inspection(seen, found)
    differ, compared, not_told = compare_gradients(command, folder)
    return Inspection(seen, differ + found, compared, not_told)
