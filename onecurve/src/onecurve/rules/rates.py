"""The base rate depends on W but the batch doesn't, or the warm-up or length does."""

import math

from onecurve.evidence.found import found
from onecurve.evidence.origins import COMPUTES
from onecurve.rules.schedule_length import schedules
from onecurve.wording import some

LEVEL = "LOOK"
MESSAGE = "the learning rate depends on the number of ranks"
FIX = "scale rate, warm-up and schedule length with the global batch, or none of them"
ORIGIN = COMPUTES


def find_by_world(comparison):
    several, first = comparison.several, comparison.first
    before = first.of("made") + first.of("step")
    known = {rate for event in before for rate in event.get("rates", [])}
    for other in comparison.with_own_lengths:
        for ours, theirs in pairs_with(several, other):
            rates = ours.get("rates", []), theirs.get("rates", [])
            if set(rates[0]) == set(rates[1]):
                continue
            grow = grow_with_batch(several, other, rates)  # and so does a schedule's
            if known.issuperset(rates[0]) and not grow:  # else drawn anew in each run
                yield from in_pair(comparison, ours, theirs)
            return


def pairs_with(several, other):
    """Return pairs of what sets rates and of steps, on W ranks and in another run."""
    pairs = list(zip(several.of("made"), other.of("made"), strict=False))
    numbers = dict.fromkeys(step["id"] for step in several.of("step"))
    others = dict.fromkeys(step["id"] for step in other.of("step"))
    for number, of_other in zip(numbers, others, strict=False):
        ours = [step for step in several.of("step") if step["id"] == number]
        theirs = [step for step in other.of("step") if step["id"] == of_other]
        pairs += zip(ours, theirs, strict=False)
    return pairs


def in_pair(comparison, ours, theirs):
    """Find why the rates of two optimizers or steps differ, unless results may."""
    several = comparison.several
    rates = [some(list(map(str, one["rates"]))) for one in (ours, theirs)]
    told = f"[{rates[0]}] on {len(several.ranks)} ranks, [{rates[1]}] on 1, set by"
    if ours["kind"] == "made":
        yield found(ours["line"], [f"initially: {told} the optimizer"])
        return
    number = several.of("step").index(ours) + 1
    told = f"step {number}: {told}"
    if ours["bases"] != theirs["bases"]:
        if number == 1:
            yield found(ours["line"], [f"{told} the script itself"], cause="rate")
        return
    by_results = any(call["metric"] is not None for call in several.of("schedule"))
    # its own scheduler may measure something; a schedule may follow parts of an epoch
    alike = several.lengths() == comparison.with_own_lengths[0].lengths()
    own = not (ours["scheduled"] and alike)
    if not (by_results or (own and number > 1) or schedules(comparison)[-1]):
        often = ours["scheduled"] != theirs["scheduled"]
        calls = several.lines_of("schedule") if often else []
        lines = several.lines_of("made", schedules=True) + calls
        yield found([ours["line"], *lines][-1], [f"{told} the schedule"])


def grow_with_batch(several, other, rates):
    """Return whether rates grow with the ranks, and so does the global batch."""
    first = [seen.first_epochs()[:1] for seen in (several, other)]
    sizes = [[epoch["sizes"][0] for epoch in epochs] for epochs in first]
    count = len(several.ranks)
    pairs = list(zip(*rates, strict=False))
    linear = all(math.isclose(rate, count * alone) for rate, alone in pairs)
    return bool(pairs) and linear and bool(sizes[0]) and sizes[0] == sizes[1]
