"""The base rate depends on W but the batch doesn't, or the warm-up or length does."""

import math

from onecurve.evidence import learning_rates
from onecurve.evidence.found import found
from onecurve.evidence.learning_rates import BY_HAND, rates_differ, set_by, step_pairs
from onecurve.evidence.origins import COMPUTES
from onecurve.evidence.printed import differing
from onecurve.wording import some

LEVEL = "LOOK"
MESSAGE = "the learning rate depends on the number of ranks"
FIX = "scale rate, warm-up and schedule length with the global batch, or none of them"
ORIGIN = COMPUTES


def find_by_world(comparison):
    several, one = comparison.several, comparison.one
    pairs = step_pairs(comparison)
    before = comparison.first.of("step") + comparison.first.of("made")
    known = {rate for event in before for rate in event.get("rates", [])}
    made = []
    for other in [one, *comparison.alone_runs]:
        both = zip(several.of("made"), other.of("made"), strict=False)
        made += [(other, *pair) for pair in both]
    steps = [(one, *pair) for pair in pairs if rates_differ(*pair)][:1]
    if any(grow_with_batch(several, *each) for each in made + steps):
        return  # and so does each rate of a schedule
    for number, (ours, theirs) in enumerate(pairs, start=1):
        if rates_differ(ours, theirs):
            if not known.issuperset(ours["rates"]):
                break  # drawn anew in each run
            given = metrics_before(several, ours)
            if any(given) and given != metrics_before(one, theirs):
                break  # each run's own results decide
            if number > 1 and several.lengths() != one.lengths():
                break  # they may follow the part of an epoch that is over
            decisions = zip(several.of("decides"), one.of("decides"), strict=False)
            adapts = any(event["adapts"] for event in several.of("made"))
            if number > 1 and (adapts or any(any(differing(p)) for p in decisions)):
                break  # so may these
            of_schedule = ours["bases"] == theirs["bases"]
            if of_schedule and learning_rates.schedules(comparison)[-1]:
                break  # both last for the whole training
            what = "the schedule" if of_schedule else set_by(several)
            told = f"step {number}: {on_each(several, ours, theirs)}, set by {what}"
            lines = several.lines_of("made", schedules=of_schedule)
            if ours["scheduled"] != theirs["scheduled"]:
                lines = several.lines_of("schedule")  # stepped more often
            cause = "rate" if what == BY_HAND else None
            yield found([ours["line"], *lines][-1], [told], cause=cause)
            return
    for _, ours, theirs in made:
        if rates_differ(ours, theirs) and known.issuperset(ours.get("rates", [])):
            told = f"initially: {on_each(several, ours, theirs)}"
            yield found(ours["line"], [f"{told}, set by the optimizer"])
            return


def grow_with_batch(several, one, ours, theirs):
    """Return whether rates grow with the ranks, and so does the global batch."""
    first = [seen.first_epochs()[:1] for seen in (several, one)]
    sizes = [[epoch["sizes"][0] for epoch in epochs] for epochs in first]
    count = len(several.ranks)
    pairs = zip(ours.get("rates", []), theirs.get("rates", []), strict=False)
    linear = [math.isclose(rate, count * alone) for rate, alone in pairs]
    return any(linear) and all(linear) and bool(sizes[0]) and sizes[0] == sizes[1]


def metrics_before(seen, step):
    """Return the metrics that schedulers were given before a step."""
    return [call["metric"] for call in seen.of("schedule")[: step["scheduled"]]]


def on_each(several, ours, theirs):
    """Describe the rates of two events, of several ranks and of one."""
    ours, theirs = [some(list(map(str, one["rates"]))) for one in (ours, theirs)]
    return f"[{ours}] on {len(several.ranks)} ranks, [{theirs}] on 1"
