"""Inspect a script by running it in several ways and comparing the runs."""

import shutil
from dataclasses import dataclass, field

from onecurve import (
    consequences,
    printed,
    ranks,
    rules,
    run,
    shares,
    sources,
    steps,
    streams,
)
from onecurve.findings import name_what_follows
from onecurve.seen import Seen
from onecurve.supervisor import HANGS

# By name because they import PyTorch.
EXCHANGED = "onecurve.gradients:exchanged"
COMPARE = "onecurve.gradients:compare"
COMPARE_ALONE = "onecurve.alone:compare"
POWER = "onecurve.divided:power_of"
DIVIDED = "onecurve.divided:judge"
IN_DOUBLE = "in float64"
NOTHING = Seen([[]])  # of one rank


@dataclass
class Comparison:
    """How a script's gradients compare."""

    exchanged: int = 0  # steps whose gradients are the mean of the ranks'
    equal: int = 0  # steps whose gradients match one process
    alone: int = 0  # steps whose gradients combine those recomputed per rank
    followed: int = 0  # steps whose recomputation starts with equal weights
    rough: str | None = None  # why gradients were not compared in float64
    of_whole: bool = False  # whether `alone` is from ranks with whole models
    why: str | None = None  # why one process was not compared, or only at first
    findings: list = field(default_factory=list)
    runs: dict = field(default_factory=dict)  # {kind: Seen} of the runs in float64


@dataclass
class Inspection:
    """Findings about a script and what could be compared."""

    seen: Seen  # of the unmodified run
    findings: list
    gradients: Comparison = field(default_factory=Comparison)
    stopped: str | None = None  # why the inspection stopped

    @property
    def status(self):
        """Return 1 after an error, 2 if the inspection stopped, or 0."""
        if any(finding.level == "ERROR" for finding in self.findings):
            return 1
        return 2 if self.stopped else 0


def run_exactly(command, kind, folder, told):
    """Run the script in float64 and add its Seen to `told`; return why it failed."""
    result, seen = run.run_kind(command, kind, folder)
    told.runs[kind] = seen
    for event in seen.of("cannot_tell"):
        if kind != "one" or not seen.of("step"):
            return event["why"]
    if run.own_fault(result):
        return run.own_fault(result)
    errors = [error for error, _ in result.errors.values()]
    # it counts batches by len(loader), but one process gets fewer, larger ones
    over = kind != "several" and seen.of("step") and errors == ["StopIteration"]
    problem = run.failure(result, command.path.name)
    if problem and not over:
        where = IN_DOUBLE if kind == "several" else "on one rank"
        return f"{where}, {problem.what}"
    return None


def compare_gradients(command, folder, seen, agree):
    """Compare the ranks' gradients with their mean and with one process.

    If they aren't exchanged but weights `agree`, an optimizer may exchange them in its
    step: then compare weights. `seen` is of the unmodified run.
    """
    told = Comparison()
    told.why = run_exactly(command, "several", folder, told)
    if told.why and told.why.startswith(IN_DOUBLE):
        # a library requires its own dtype: compare roughly
        told.rough = told.why
        command = command._replace(double=False)
        shutil.rmtree(folder / "several")
        told.why = run_exactly(command, "several", folder, told)
    if told.why:
        return told
    own = sorted((folder / "several").glob("steps*"))
    facts = seen.own_parts(), bool(seen.of("split"))
    told.exchanged, found, kept = ranks.call(EXCHANGED, own, *facts)
    told.findings += [kept] if kept else []
    if found and found.level == "ERROR":
        if agree and not compare_one(command, folder, own, told, by_weights=True):
            found.level = "LOOK"  # one process may do the same
        if not told.equal:
            told.findings.append(found)
            told.why = "they are not averaged across ranks"
        return told
    told.findings += compare_with_one(command, folder, own, told, found)
    averaged = told.exchanged or (seen.of("shard") and not seen.of("scale"))
    if averaged and not told.equal and not told.findings:
        told.findings += compare_wider(command, folder, own, told)
    return told


def compare_with_one(command, folder, several, told, added):
    """Compare with one process, or with one per rank; return Findings.

    `added` is a Finding that gradients are summed, or None.
    """
    differ = compare_one(command, folder, several, told)
    if not told.equal:
        alone = compare_alone(command, folder, several, told)
        if alone and (alone.level == "ERROR" or not differ):
            differ = alone
    if differ:
        told.alone = 0
    # a sum is right if it matches one process
    known = told.equal or told.alone or (differ and differ.name == "added")
    return [one for one in (differ, added if not known else None) if one]


def compare_one(command, folder, several, told, by_weights=False):
    """Compare with one process that does all ranks' work; return a Finding or None.

    With `by_weights`, compare the weights after each step.
    """
    told.why = run_exactly(command, "one", folder, told)
    if told.why:
        return None
    paths = several, folder / "one/steps0"
    told.equal, differ, told.why = ranks.call(COMPARE, *paths, by_weights)
    for event in told.runs["one"].of("cannot_tell"):  # a later batch
        told.why = told.why or event["why"]
    return differ


def compare_alone(command, folder, several, told):
    """Compare with one process per rank; update `told`, return a Finding or None."""
    numbers = range(command.ranks)
    for kind in "alone", "split", "whole":  # "whole" if one rank alone fails
        kinds = ["whole"] if kind == "whole" else [f"{kind}{one}" for one in numbers]
        if not any(run_exactly(command, one, folder, told) for one in kinds):
            break
    else:
        return None
    told.of_whole = kind == "whole"
    alone = [step for one in kinds for step in sorted((folder / one).glob("steps*"))]
    known = told.exchanged > 0
    compared = ranks.call(COMPARE_ALONE, several, alone, known)
    told.alone, differ, why, told.followed = compared
    if told.why and why:
        told.why = f"{told.why}; {why}"
    return differ


def compare_wider(command, folder, several, told):
    """Compare with one more rank if a loss seems to depend on their number."""
    power = ranks.call(POWER, several)
    if not power:
        return []
    if run_exactly(command, "wider", folder, told):
        return []
    wider = sorted((folder / "wider").glob("steps*"))
    found = ranks.call(DIVIDED, several, wider, power)
    return [found] if found else []


def inspect(command, folder):
    """Run a command, a tuple like Command, and return an Inspection.

    Recreates `folder`. With one rank there is nothing to compare: it runs only once.
    """
    command = run.Command(*command)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    result, seen = run.run_kind(command, "watch", folder)
    problem = run.failure(result, command.path.name)
    if problem and seen.of("cut"):
        # it may need the results of a full evaluation
        shutil.rmtree(folder / "watch")
        command = command._replace(cuts=False)
        result, seen = run.run_kind(command, "watch", folder)
        problem = run.failure(result, command.path.name)
    if seen.of("cannot_tell"):
        return Inspection(seen, [], stopped=seen.of("cannot_tell")[0]["why"])
    if run.own_fault(result):
        return Inspection(seen, [], stopped=run.own_fault(result))
    unequal = []
    if problem and problem.name == "hang":
        unequal = list(shares.numbers_of_batches(seen.takers(), problem))
    if unequal:  # run the rest, too
        shutil.rmtree(folder / "watch")
        command = command._replace(lengths=False)
        result, seen = run.run_kind(command, "watch", folder)
        problem = run.failure(result, command.path.name)
    found = rules.findings(seen) + unequal
    if problem:
        if problem.name == "fails":  # the other ranks were killed
            found = [one for one in found if rules.NO_MORE not in str(one.details)]
        return Inspection(seen, [problem, *found], stopped="the run did not finish")
    if result.late:
        count = len(seen.of("step"))
        told = f"{count} steps took {run.MOST_SECONDS} s: use smaller sizes"
        if result.late == HANGS:
            told = f"all ranks were idle for {run.IDLE} s after {count} steps"
        return Inspection(seen, found, stopped=told)
    if command.ranks == 1:
        return Inspection(seen, found)
    agree = consequences.weights_agree(found, seen)
    told = compare_gradients(command, folder, seen, agree)
    found += differ_by_world(told)
    found = consequences.with_consequence(told.findings + found, seen, told)
    found = name_what_follows(found)
    for one in found:
        sources.point(one, command.path.parent)
    return Inspection(seen, found, told)


def differ_by_world(told):
    """Return Findings on what depends on the number of ranks, or should on the rank."""
    several = told.runs["several"]
    one = told.runs.get("one", NOTHING)
    alone = [seen for kind, seen in told.runs.items() if kind.startswith("alone")]
    found = [*steps.rates_by_world(several, one)]
    found += [] if found else steps.first_rates_by_world(several, [one, *alone])
    found += steps.length_by_world(several, [one, *alone])
    found += streams.drawn_alike(several)
    found += streams.own_orders(one)
    if told.equal:
        found += printed.numbers_by_world(several, [one], told.equal)
    elif not told.of_whole and len(alone) == len(several.ranks):
        found += printed.numbers_by_world(several, alone, told.followed)
    return found
