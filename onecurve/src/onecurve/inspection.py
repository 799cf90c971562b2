"""Inspect a script by running it in several ways and comparing the runs."""

import shutil
import time
from dataclasses import dataclass, field
from functools import partial

from onecurve import rules
from onecurve.compare import run
from onecurve.compare.comparison import Comparison, compare_gradients
from onecurve.evidence.seen import Seen
from onecurve.report import consequences, sources
from onecurve.start.patience import HANGS


@dataclass
class Inspection:
    """Findings about a script and what could be compared."""

    seen: Seen  # of the unmodified run
    findings: list
    gradients: Comparison = field(default_factory=Comparison)
    stopped: str | None = None  # why the inspection stopped
    partial: bool = False  # whether time was over after some steps

    @property
    def status(self):
        """Return 1 after an error, 2 if it stopped, 3 if it is partial, or 0."""
        if any(finding.level == "ERROR" for finding in self.findings):
            return 1
        return 2 if self.stopped else 3 * self.partial


def watch(command, folder):
    """Run a command unchanged; return its Result, its Seen and any failure."""
    result, seen = run.run_kind(command, "watch", folder)
    return result, seen, run.failure(result, command.path, seen)


def inspect(command, folder):
    """Run a command, a tuple like Command, and return an Inspection.

    Recreates `folder`. With one rank there is nothing to compare: it runs only once.
    """
    until = time.monotonic() + 60 * run.MOST_MINUTES
    command = run.Command(*command)._replace(until=until)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    result, seen, problem = watch(command, folder)
    cuts = [event["training"] for event in seen.of("cut")]
    if problem and cuts and (problem.name == "fails" or not all(cuts)):  # maybe by us
        whole = command._replace(cuts=False)
        again = watch(whole, folder)
        if not again[0].late:
            command = whole
            result, seen, problem = again
    why = [event["why"] for event in seen.of("cannot_tell")]
    if why or result.own_fault:
        return Inspection(seen, [], stopped=(why or [result.own_fault])[0])
    why = problem and run.apart_from_ranks(problem, result, command, folder)
    if result.late or why:
        seen.end_together()
    found = rules.findings(seen)
    if problem and not why:
        return unfinished(command, seen, found, problem)
    return compare(command, folder, result, seen, found, why)


def unfinished(command, seen, found, problem):
    """Return an Inspection of a run that failed or hangs, with likely causes first."""
    if problem.name == "fails" and None in (seen.first_parting() or ()):
        found = [one for one in found if one.name != "different_collectives"]
    names = ("different_collectives",) if problem.name == "fails" else ()
    if problem.name == "hang" and not problem.line:
        names = "decision_by_rank", "batches"
    causes = [one for one in found if one.name in names]
    for one in causes:
        one.level = "ERROR"
        sources.point(one, partial(source_of, command.path.parent), seen)
    found = [*causes, problem, *(one for one in found if one not in causes)]
    return Inspection(seen, found, stopped="the run did not finish")


def compare(command, folder, result, seen, found, why=None):
    """Return an Inspection of a run, compared with other runs if it ended well.

    `why` is how it failed, if that says nothing about several ranks.
    """
    read = partial(source_of, command.path.parent)
    if result.late or why:
        count = len(seen.of("step"))
        told = why or f"{count} steps took {run.MOST_SECONDS} s: use smaller sizes"
        if result.late == HANGS:
            told = f"all ranks were idle for {run.IDLE} s after {count} steps"
        if result.late == HANGS or not count:
            return Inspection(seen, found, stopped=told)
        found = interpret(found, seen, Comparison(), read)
        return Inspection(seen, found, Comparison(why=told), partial=True)
    if command.ranks == 1:
        return Inspection(seen, found)
    agree = consequences.weights_agree(found, seen)
    told = compare_gradients(command, folder, seen, agree)
    if not seen.of("step"):
        told.why = told.why and "no optimizer took a step"
    for kept in folder.glob("*/steps*"):  # batches and gradients, which are large
        shutil.rmtree(kept)
    found += rules.findings_by_world(told)
    found = interpret(told.findings + found, seen, told, read)
    return Inspection(seen, found, told)


def source_of(folder, file):
    """Return a file's source, or None."""
    path = folder / file
    return path.read_text(errors="replace") if path.is_file() else None


def findings(seen, read):
    """Return what one run shows. `read` returns a file's source, or None."""
    return interpret(rules.findings(seen), seen, Comparison(), read)


def interpret(found, seen, told, read):
    """Return the findings without harmless ones and consequences, at their causes.

    `told` is the Comparison with other runs, which may be empty.
    """
    found = consequences.with_consequence(found, seen, told)
    found = consequences.name_what_follows(found)
    for one in found:
        sources.point(one, read, seen)
    return found
