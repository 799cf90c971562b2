"""Inspect a script: `python -m tools.inspect [--ranks N] train.py FLAGS...`.

The script runs three times for some steps, in processes of its own, and nothing of it
is changed on the disk: as it is, on N CPU ranks; in float64 on N ranks; and in float64
on one rank that is handed the same batches. Exit status 1 where an error was found, 2
where the script could not be run.
"""

import argparse
import shutil
import sys
import time
from pathlib import Path

from tools.inspect import equal, report, rules
from tools.inspect.rank import STALLED, Task, prepare
from tools.run import ranks
from tools.run.stages import ROOT, refuse
from tools.watch.events import read_events

LOGS = ROOT / "runs" / "inspect"
MOST_SECONDS = 240  # of a run


def parse_args():
    """Return the command line; all after the script is the script's."""
    parser = argparse.ArgumentParser(prog="make inspect", description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("script", type=Path)
    parser.add_argument("flags", nargs=argparse.REMAINDER)
    return parser.parse_args()


def run_kind(args, kind, folder):
    """Run the script once; return what ranks.run does, and the ranks' events."""
    count = 1 if kind == "one" else args.ranks
    place = folder / kind
    place.mkdir()
    path = args.script.resolve()
    here = Path.cwd()
    working = here if path.is_relative_to(here) else path.parent
    task = Task(str(path), str(working), str(place), count, kind)
    words = [path, *args.flags]
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


def compare_gradients(args, folder):
    """Return (findings, steps that were equal, why it could not be told)."""
    for kind in "several", "one":
        result, events = run_kind(args, kind, folder)
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
    return [gradient_finding(args.ranks, difference)], 0, []


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


def main():
    args = parse_args()
    if not args.script.is_file():
        refuse(f"there is no script {args.script}: SCRIPT=train.py names it")
    begun = time.monotonic()
    folder = LOGS / args.script.stem
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    result, events = run_kind(args, "watch", folder)
    seen = rules.Seen(events)
    found = rules.findings(seen)
    problem = failure(result, seen)
    compared, not_told = 0, []
    if problem:
        found.insert(0, problem)
    else:
        differ, compared, not_told = compare_gradients(args, folder)
        found = differ + found
    seconds = time.monotonic() - begun
    name = args.script.name
    told = report.text(
        name, args.ranks, seen, seconds, found, compared, not_told, folder
    )
    print(told)
    sys.exit(any(one.level == "ERROR" for one in found))


if __name__ == "__main__":
    main()
