"""Each rank trains its own model from then on. The details say what made the weights
differ, such as a line that changes them on one rank, or an unlike gradient.
"""

from onecurve.evidence.found import found
from onecurve.evidence.seen import changed_by, first_split

LEVEL = "ERROR"
MESSAGE = "weights differ between ranks after step {number}"
FIX = "start with equal weights, and wrap every trained parameter in DDP or FSDP"
FOLLOWS = ("gradient", "evaluated_weights")
RATES = "set the same learning rate on every rank in every step"
AVERAGE = "average this gradient over all ranks before its optimizer's step"
PLANNED = "include every layer in the plan, or use the same seed on all ranks"
ALIKE = "change weights and optimizer state in the same way on every rank"
TOGETHER = "take or skip a step on all ranks: all_reduce what decides, with MIN"
UNCHANGED = "don't change weights between wrapping and the first step"


def find(seen):
    begun = None
    own = seen.own_parts()
    if seen.agree_in_each_step():
        return  # a rank may begin its loader again while others go on
    for by_rank in seen.batches_begun():
        number = max(event["steps"] for event in by_rank.values())
        name = first_split([event["weights"] for event in by_rank.values()], own)
        if name and number:  # before the first step, weights may still change
            line, told, fix = why_weights_differ(seen, by_rank, begun, name)
            details = [f"first difference: {name}", *told]
            cause = "rate" if fix == RATES else None
            yield found(line, details, fix=fix, cause=cause, number=number)
            return
        begun = by_rank if name else begun


def why_weights_differ(seen, by_rank, begun, name):
    """Return (line, details, fix or None) for a weight, by name, that differs.

    `by_rank` are the first such events after a step, `begun` those before it, or None.
    """
    changed, by_all, where = changed_by(begun or by_rank, name)
    if begun:
        told = ["they already differ before the first step"]
        wrappers = seen.values("ddp", "line")
        plans = seen.values("split", "line")
        if wrappers:
            told += [*where, f"DDP made them equal at {wrappers[0]}"]
            return changed or wrappers[0], told, UNCHANGED
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
    if all(one == rates[0] for one in rates):
        if changed and not by_all:
            return changed, where, ALIKE
        for steps in seen.together("before_step", lambda one: name in one["gradients"]):
            if len({one["gradients"][name] for one in steps}) > 1:
                time = steps[0]["time"]
                number = sum(step["time"] < time for step in seen.of("step")) + 1
                told = f"its gradient differs between ranks in step {number}"
                return steps[0]["line"], [told], AVERAGE
        return changed or line, where, ALIKE if changed else None
    return sets_rates(seen) or line, [f"learning rates differ: {rates}"], RATES


def sets_rates(seen):
    """Return the line that gives the ranks' optimizers different rates, or None."""
    for each in seen.together("made"):
        if any(one["rates"] != each[0]["rates"] for one in each):
            return each[0]["line"]
    calls = max(seen.on_all("schedule"), key=len)
    return calls[-1]["line"] if calls else None
