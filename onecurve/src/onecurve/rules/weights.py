"""Each rank trains its own model from then on. The finding points to what made them
differ: a line that changes weights outside of `optimizer.step()`, a gradient that was
not exchanged, learning rates, or different weights at the start.
"""

from onecurve.evidence.found import found
from onecurve.evidence.learning_rates import BY_HAND
from onecurve.evidence.seen import first_split
from onecurve.evidence.writes import changed_by, since_equal, unlike_gradients

LEVEL = "ERROR"
MESSAGE = "weights differ between ranks after step {number}"
FIX = "start with equal weights, and wrap every trained parameter in DDP or FSDP"
FOLLOWS = ("gradient", "evaluated_weights")
RATES = "set the same learning rate on every rank in every step"
AVERAGE = "average this gradient over all ranks before its optimizer's step"
NOT_SHARED = "the ranks draw different random numbers in this model call"
SHARED = "draw the same numbers on these ranks, such as dropout's: seed them alike"
ALIKE = "change weights and optimizer state in the same way on every rank"
PLANNED = "include every layer in the plan, or use the same seed on all ranks"
TOGETHER = "take or skip a step on all ranks: all_reduce what decides, with MIN"
UNCHANGED = "don't change weights between wrapping and the first step"


def find(seen):
    begun = None
    own = seen.own_parts()
    if seen.agree_in_each_step():
        return  # a rank may begin its loader again while others go on
    earlier = []
    for by_rank in seen.batches_begun():
        number = max(event["steps"] for event in by_rank.values())
        name = first_split([event["weights"] for event in by_rank.values()], own)
        if name and number:  # before the first step, weights may still change
            parts = since_equal(seen, earlier, begun or by_rank, name)
            line, told, fix = why_weights_differ(seen, by_rank, begun, parts, name)
            details = [f"first difference: {name}", *told]
            cause = "rate" if fix == RATES and not seen.of("schedule") else None
            yield found(line, details, fix=fix, cause=cause, number=number)
            return
        earlier.append(by_rank)
        begun = by_rank if name else begun


def why_weights_differ(seen, by_rank, begun, parts, name):
    """Return (line, details, fix or None) for weights that differ.

    `by_rank` are the first such events after a step, `begun` those before it, or None;
    `parts` are each rank's events since weight `name` was equal.
    """
    lines = changed_by(parts, name)
    alone = [line for line in lines if len(lines[line]) < len(parts)]
    where = [f"only ranks {sorted(lines[line])} change it here" for line in alone]
    if begun:
        told = ["they already differ before the first step"]
        wrappers = seen.lines_of("ddp")
        plans = seen.lines_of("split")
        if wrappers and lines:
            told += where[:1] or ["each rank changes it here"]
            told.append(f"DDP made them equal at {wrappers[0]}")
            return [*alone, *lines][0], told, UNCHANGED
        if wrappers:
            return wrappers[0], [*told, "DDP made them equal here"], UNCHANGED
        if plans:
            return plans[-1], told, PLANNED
        return begun[0]["made"], told, None
    counts = {rank: event["steps"] for rank, event in by_rank.items()}
    taken = {rank: count for rank, count in counts.items() if count}
    latest = {rank: seen.of("step", rank)[taken[rank] - 1] for rank in taken}
    rates = [step["rates"] for step in latest.values()]
    line = latest[min(latest)]["line"]
    if len(set(counts.values())) > 1:
        told = [f"rank {rank} took {count} steps" for rank, count in counts.items()]
        return line, told, TOGETHER
    optimizers = {rank: one["id"] for rank, one in latest.items()}
    if all(one == rates[0] for one in rates):
        if alone:
            return alone[0], where[:1], ALIKE
        steps = unlike_gradients(parts, name)
        if steps:
            return of_gradients(seen, steps)
        one, where = seen.done_by_some(optimizers)
        if one:
            return one, where, ALIKE
        for changed in lines:
            return changed, ["each rank changes it here"], ALIKE
        return line, [], None
    told = [f"learning rates differ: {rates}"]
    if not seen.of("schedule"):
        told[0] += f", set by {BY_HAND}"
    one, where = seen.done_by_some(optimizers)
    return one or line, told + where, RATES


def of_gradients(seen, steps):
    """Return (line, details, fix) for steps of the ranks with different gradients."""
    time = steps[0]["time"]
    passes = [each for each in seen.training_passes() if each[0]["time"] < time]
    number = sum(step["time"] < time for step in seen.of("step")) + 1
    told = [f"its gradient differs between ranks in step {number}"]
    share_batches = len(seen.groups()) < len(seen.ranks)
    drawn = [one["drawn"] for one in passes[-1]] if passes and share_batches else []
    if any(one != drawn[0] for one in drawn):
        return passes[-1][0]["line"], [*told, NOT_SHARED], SHARED
    return steps[0]["line"], told, AVERAGE
