"""Rules for learning rates and their schedules."""

import math

from onecurve.rules.findings import finding, of_each_rank
from onecurve.wording import SHOWN

BY_HAND = "the script itself"


def rates_by_world(several, one):
    """Find learning rates that depend on the number of ranks.

    Without epochs, find schedules that don't though each step uses W times the samples.
    """
    pairs = pairs_of_steps(several, one)
    for number, (ours, theirs) in enumerate(pairs, start=1):
        if set(ours["rates"]) != set(theirs["rates"]):
            if grow_with_batch(several, one, ours["rates"], theirs["rates"]):
                return
            given = metrics_before(several, ours)
            if any(given) and given != metrics_before(one, theirs):
                return  # each run's own results decide
            of_schedule = ours["bases"] == theirs["bases"]
            what = "the schedule" if of_schedule else set_by(several)
            told = f"step {number}: {on_each(several, ours, theirs)}, set by {what}"
            made = several.lines_of("made", schedules=of_schedule)
            if ours["scheduled"] != theirs["scheduled"]:
                made = several.lines_of("schedule")  # stepped more often
            cause = "rate" if what == BY_HAND else None
            yield finding("rates", (made or [ours["line"]])[-1], [told], cause=cause)
            return
    varies = any(ours["rates"] != pairs[0][0]["rates"] for ours, _ in pairs)
    alike = all(ours["samples"] == theirs["samples"] for ours, theirs in pairs)
    if varies and alike and not several.readings(0, True):
        line = [pairs[0][0]["line"], *several.lines_of("made", schedules=True)][-1]
        by_hand = set_by(several) == BY_HAND
        told = [f"the learning rate depends on the step number, set by {BY_HAND}"]
        facts = {"ranks": len(several.ranks), "cause": "rate" if by_hand else None}
        yield finding("updates", line, told if by_hand else [], **facts)


def grow_with_batch(several, one, ours, theirs):
    """Return whether rates grow with the ranks, and so does the global batch."""
    sizes = []
    for seen in several, one:
        sizes.append([epoch["sizes"][0] for epoch in seen.first_epochs()[:1]])
    count = len(several.ranks)
    pairs = zip(ours, theirs, strict=False)
    linear = all(math.isclose(rate, count * alone) for rate, alone in pairs)
    return linear and bool(sizes[0]) and sizes[0] == sizes[1]


def metrics_before(seen, step):
    """Return the metrics that schedulers were given before a step."""
    return [call["metric"] for call in seen.of("schedule")[: step["scheduled"]]]


def pairs_of_steps(several, one):
    """Return pairs of steps in two runs, those of each optimizer together."""
    pairs = []
    for both in zip(by_optimizer(several), by_optimizer(one), strict=False):
        pairs += zip(*both, strict=False)
    return pairs


def by_optimizer(seen):
    """Return the steps of each optimizer, in the order of their first steps."""
    found = {}
    for step in seen.of("step"):
        found.setdefault(step["id"], []).append(step)
    return list(found.values())


def first_rates_by_world(several, others):
    """Find initial rates that depend on the number of ranks, if one takes no step."""
    for other in others:
        pairs = zip(several.of("made"), other.of("made"), strict=False)
        for ours, theirs in pairs:
            rates = [one.get("rates", []) for one in (ours, theirs)]
            if set(rates[0]) == set(rates[1]):
                continue
            if not grow_with_batch(several, other, *rates):
                told = f"initially: {on_each(several, ours, theirs)}"
                yield finding("rates", ours["line"], [f"{told}, set by the optimizer"])
                return


def on_each(several, ours, theirs):
    """Describe the rates of two events, of several ranks and of one."""
    ours, theirs = [shortened(one["rates"]) for one in (ours, theirs)]
    return f"{ours} on {len(several.ranks)} ranks, {theirs} on 1"


def shortened(rates):
    """Return the rates of an optimizer's first groups as a string."""
    if len(rates) <= SHOWN:
        return str(rates)
    told = ", ".join(f"{rate:.6g}" for rate in rates[:SHOWN])
    return f"[{told}, ...]"


def set_by(seen):
    """Return what sets the learning rates if no scheduler does."""
    rates = [step["rates"] for step in seen.of("step")]
    by_hand = rates[0] != rates[-1] and not seen.of("schedule")
    return BY_HAND if by_hand else "the optimizer"


def length_by_world(several, others):
    """Find schedules too long or short for W ranks, by Seens of W ranks and of 1."""
    ours = epoch_of_schedule(several)
    known = [epoch_of_schedule(one) for one in others]
    theirs = next((one for one in known if one), None)
    if not (ours and theirs) or 0.8 < ours[0] / ours[1] * theirs[1] / theirs[0] < 1.25:
        return
    taken, length, line = ours
    alone, of_one, _ = theirs
    details = [f"{len(several.ranks)} ranks: {taken:.0f} of {length} steps per epoch"]
    details.append(f"1 process: {alone:.0f} of {of_one}")
    yield finding("length", line, details)


def epoch_of_schedule(seen):
    """Return (scheduler steps per epoch, schedule length, its line), or None."""
    made = [event for event in seen.of("made") if event["length"]]
    epochs = seen.first_epochs()
    calls = len(seen.of("schedule"))
    steps = len(seen.of("step"))
    # after one step, we don't know how often the scheduler is stepped
    alone = steps == 1 and seen.of("cannot_tell")
    if alone or not (made and epochs and calls and steps):
        return None
    taken = len(epochs[0]["sizes"]) / seen.batches_of_step()
    often = taken * round(calls / steps) if calls >= steps else 1
    longest = max(made, key=lambda event: event["length"])
    return often, longest["length"], longest["line"]


def schedules_differ(seen):
    """Find schedulers that ranks don't step equally often or with equal metrics."""
    calls = seen.on_all("schedule")
    counts = [len(each) for each in calls]
    if len(set(counts)) > 1 and not seen.of("join") and not rates_move_alike(seen):
        most = calls[counts.index(max(counts))]
        told = of_each_rank(f"{count} times" for count in counts)
        level = "LOOK" if is_broadcast(seen, counts.index(max(counts))) else None
        yield finding("schedule", most[min(counts)]["line"], told, level)
        return
    for each in seen.together("schedule"):
        numbers = [one["metric"] for one in each]
        if len(set(numbers)) > 1:
            yield finding("schedule", each[0]["line"], of_each_rank(numbers))
            return


def rates_move_alike(seen):
    """Return whether rates change equally on all ranks: one may broadcast them."""
    ranks = [[step["rates"] for step in each] for each in seen.on_all("step")]
    return all(each == ranks[0] for each in ranks) and ranks[0][0] != ranks[0][-1]


def is_broadcast(seen, rank):
    """Return whether a rank broadcasts a number right after a scheduler's step."""
    waits = False
    for event in seen.events[rank]:
        if event["kind"] == "schedule":
            waits = True
        elif event["kind"] == "collective_call" and waits:
            if event["numbers"] != 1 or event["name"] != "broadcast":
                return False
            waits = False
    return True
