"""Compare a script's gradients on several ranks with one process's, run by run."""

import time
from dataclasses import dataclass, field, replace

from onecurve.compare import run
from onecurve.evidence.seen import Seen
from onecurve.feed.kinds import kind_of
from onecurve.rules import by_world
from onecurve.start import ranks
from onecurve.wording import REORDERED

# By name because they import PyTorch.
EXCHANGED = "onecurve.compare.gradients:exchanged"
COMPARE = "onecurve.compare.gradients:compare"
COMPARE_ALONE = "onecurve.compare.per_rank:compare"
GATHERS = "the autograd Function that calls {name} has none in its backward()"
SUM = "all_reduce the gradient in the Function's backward()"


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
    first: Seen | None = None  # of the ranks' unmodified run
    values: list | None = ()  # that differ, whatever len(loader) is; None if unknown

    @property
    def several(self):
        """Return the Seen of several ranks; it may be empty."""
        return self.runs.get("several", Seen([[]]))

    @property
    def alone_runs(self):
        """Return the Seens of processes that each repeat one rank's work."""
        return [seen for kind, seen in self.runs.items() if kind.startswith("alone")]

    def same_work(self):
        """Return (Seens of single processes, their steps with the ranks' weights)."""
        if self.equal:
            return [self.runs["one"]], self.equal
        if not self.of_whole and len(self.alone_runs) == len(self.several.ranks):
            return self.alone_runs, self.followed
        return [], 0


def run_exactly(command, name, folder, told):
    """Run the script in float64, and add its Seen to `told`.

    Return (why it failed or None, whether the script itself failed, not onecurve).
    """
    kind, _ = kind_of(name)
    told.runs[name] = Seen([[]])
    if time.monotonic() > command.until:
        return f"{run.MOST_MINUTES} minutes were over: use smaller sizes", False
    result, seen = run.run_kind(command, name, folder)
    told.runs[name] = seen
    for event in seen.of("cannot_tell"):
        if kind.feed != "merged" or not seen.of("step"):
            return event["why"], False
    if result.own_fault:
        return result.own_fault, False
    errors = [error for error, _ in result.errors.values()]
    # it counts batches by len(loader), but one process gets fewer, larger ones
    over = kind.feed != "own" and seen.of("step") and errors == ["StopIteration"]
    problem = run.failure(result, command.path, seen)
    if problem and not over:
        if problem.name == "hang" and name == "several":
            problem.level = "LOOK"  # the unmodified run did not hang
            told.findings.append(problem)
        return f"{kind.told}, {problem.what}", True
    return None, False


def compare_gradients(command, folder, seen, agree):
    """Compare the ranks' gradients with their mean and with one process.

    If they aren't exchanged but weights `agree`, an optimizer may exchange them in its
    step: then compare weights. `seen` is of the unmodified run.
    """
    told = Comparison(first=seen)
    told.why, script_failed = run_exactly(command, "several", folder, told)
    if script_failed:
        # a library requires its own dtype: compare roughly
        told.rough = told.why
        command = command._replace(double=False)
        told.why, _ = run_exactly(command, "several", folder, told)
    if told.why:
        return told
    own = sorted((folder / "several").glob("steps*"))
    facts = seen.own_parts(), bool(seen.of("split"))
    told.exchanged, found = ranks.call(EXCHANGED, own, *facts)
    if found and found.level == "ERROR":
        given = command._replace(lengths=lengths(told.several))
        if agree and not compare_one(given, folder, own, told, by_weights=True):
            found.level = "LOOK"  # one process may do the same
        told.values = list(by_world.differing(told))
        if not told.equal:
            told.findings.append(found)
            told.why = "they are not averaged across ranks"
        return told
    return compare_with_one(command, folder, own, told, found)


def compare_with_one(command, folder, several, told, added):
    """Compare with one process, or with one per rank; return a Comparison.

    `added` is a Finding that gradients are summed, or None. A loss or a printed value
    may depend on len(loader), which is larger on one process. So tell it the ranks'
    lengths first. If anything differs, compare again with its own lengths.
    """
    known = list(told.findings)
    own = replace(told, runs=dict(told.runs), values=None, findings=list(known))
    given = command._replace(lengths=lengths(told.several))
    told.findings += compare_once(given, folder, several, told, added)
    told.values = list(by_world.differing(told))
    asked = any(seen.of("length") for seen in told.runs.values())
    matches = told.equal or told.alone
    if not asked or (matches and not told.values):
        return told
    own.findings += compare_once(command, folder, several, own, added)
    if not matches:
        is_better = own.equal or own.alone or told.findings == known
        return own if is_better else told
    places = [place for place, *_ in by_world.differing(own)]
    both = [value for value in told.values if value[0] in places]
    told.values = both if own.same_work()[0] else None
    return told


def lengths(seen):
    """Return {rank: {(line, number of its loader): batches}} of merged batches."""
    found = {}
    for rank in seen.ranks:
        cut = [event["made"] for event in seen.of("cut", rank)]
        begun = seen.of("begun", rank)
        merged = [one for one in begun if one["trains"] or one["made"] in cut]
        found[rank] = {tuple(one["made"]): one["batches"] for one in merged}
    return found


def compare_once(command, folder, several, told, added):
    """Compare with one process, or with one per rank; return Findings."""
    differ = compare_one(command, folder, several, told)
    if differ and told.runs["one"].of("padded"):
        differ = None
        told.why = "one process pads samples to the longest of all ranks"
    if not told.equal:
        alone = compare_alone(command, folder, several, told)
        if alone and (alone.level == "ERROR" or not differ):
            differ = alone
        elif told.alone and differ and differ.factor and is_batch_of_rank(told):
            told.why = "one process gets larger batches than the script expects"
            return []
    if differ:
        told.alone = 0
    if differ and differ.name == "gradient" and not differ.factor:
        blame_function(differ, told.several.of("collective_call"))
    known = told.equal or told.alone  # a sum is right if it matches one process
    if differ and added and added.name == "exchange":
        differ.level = added.level  # a mean of signs, for example, may be meant
    elif differ:
        known = known or not differ.factor  # a sum doesn't turn a gradient
    return [one for one in (differ, added if not known else None) if one]


def blame_function(differ, calls):
    """Point to an autograd Function with a collective in forward() alone."""
    joins = [one for one in calls if one["joins"] is True]
    if joins and not any(one["back"] for one in calls):
        differ.details += [GATHERS.format(**joins[0]), f"backward() at {differ.line}"]
        differ.line, differ.fix = joins[0]["line"], SUM


def is_batch_of_rank(told):
    """Return whether a rank's batch size is the same on one rank.

    Then one process gets a larger batch than the script expects. A loss divided by the
    expected size is wrong only there.
    """
    sizes = []
    for kind in "several", "alone0":
        epochs = told.runs[kind].readings(0, True) if kind in told.runs else []
        sizes.append([epoch["sizes"][:1] for epoch in epochs[:1]])
    return bool(sizes[0]) and sizes[0] == sizes[1]


def compare_one(command, folder, several, told, by_weights=False, again=False):
    """Compare with one process that does all ranks' work; return a Finding or None.

    With `by_weights`, compare the weights after each step. If the process has the
    samples in another order, it runs again with the random numbers in that order.
    """
    told.why, _ = run_exactly(command, "one", folder, told)
    if told.why:
        return None
    paths = several, folder / "one/steps0"
    told.equal, differ, told.why = ranks.call(COMPARE, *paths, by_weights)
    if told.why == REORDERED and not again:
        return compare_one(command, folder, several, told, by_weights, again=True)
    for event in told.runs["one"].of("cannot_tell"):  # a later batch
        told.why = told.why or event["why"]
    return differ


def compare_alone(command, folder, several, told):
    """Compare with one process per rank; update `told`, return a Finding or None."""
    numbers = range(command.ranks)
    for kind in "alone", "split", "whole":  # "whole" if one rank alone fails
        kinds = ["whole"] if kind == "whole" else [f"{kind}{one}" for one in numbers]
        if not any(run_exactly(command, one, folder, told)[0] for one in kinds):
            break
    else:
        return None
    told.of_whole = kind == "whole"
    alone = [step for one in kinds for step in sorted((folder / one).glob("steps*"))]
    known = told.exchanged > 0
    compared = ranks.call(COMPARE_ALONE, several, alone, known)
    told.alone, differ, why, told.followed = compared
    if told.why and why and why != told.why:
        told.why = f"{told.why}; {why}"
    return differ
