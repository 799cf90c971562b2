"""Each rank trains its own model from then on. The details say whether a gradient was
not exchanged or the ranks started with different weights.
"""

from onecurve.evidence.found import found
from onecurve.evidence.learning_rates import BY_HAND
from onecurve.evidence.seen import first_split

LEVEL = "ERROR"
MESSAGE = "weights differ between ranks after step {number}"
FIX = "start with equal weights, and wrap every trained parameter in DDP or FSDP"
FOLLOWS = ("gradient", "evaluated_weights")
RATES = "set the same learning rate on every rank in every step"
ALIKE = "change weights and optimizer state in the same way on every rank"
PLANNED = "include every layer in the plan, or use the same seed on all ranks"
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
            line, told, fix = why_weights_differ(seen, by_rank, begun)
            details = [f"first difference: {name}", *told]
            cause = "rate" if fix == RATES and not seen.of("schedule") else None
            yield found(line, details, fix=fix, cause=cause, number=number)
            return
        begun = by_rank if name else begun


def why_weights_differ(seen, by_rank, begun):
    """Return (line, details, fix or None) for weights that differ.

    `by_rank` are the first such events after a step, `begun` those before it, or None.
    """
    if begun:
        told = ["they already differ before the first step"]
        wrappers = seen.lines_of("ddp")
        plans = seen.lines_of("split")
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
    if all(one == rates[0] for one in rates):
        for events in by_rank, latest:  # networks, then optimizers
            ids = {rank: event["id"] for rank, event in events.items()}
            alone, where = seen.done_by_some(ids)
            if alone:
                return alone, where, ALIKE
        return line, [], None
    told = [f"learning rates differ: {rates}"]
    if not seen.of("schedule"):
        told[0] += f", set by {BY_HAND}"
    alone, where = seen.done_by_some({rank: one["id"] for rank, one in latest.items()})
    return alone or line, told + where, RATES
