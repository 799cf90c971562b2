"""Learning rates on several ranks, next to those of one process."""

BY_HAND = "the script itself"


def step_pairs(comparison):
    """Return pairs of steps on W ranks and on one, those of each optimizer together."""
    pairs = []
    tables = by_optimizer(comparison.several), by_optimizer(comparison.one)
    for both in zip(*tables, strict=False):
        pairs += zip(*both, strict=False)
    return pairs


def by_optimizer(seen):
    """Return the steps of each optimizer, in the order of their first steps."""
    steps = seen.of("step")
    ids = dict.fromkeys(one["id"] for one in steps)
    return [[one for one in steps if one["id"] == each] for each in ids]


def rates_differ(ours, theirs):
    """Return whether two events, such as steps, have different learning rates."""
    return set(ours.get("rates", [])) != set(theirs.get("rates", []))


def set_by(seen):
    """Return what sets the learning rates if no scheduler does."""
    rates = [step["rates"] for step in seen.of("step")]
    by_hand = rates[0] != rates[-1] and not seen.of("schedule")
    return BY_HAND if by_hand else "the optimizer"


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


def schedules(comparison):
    """Return several ranks' and one's `epoch_of_schedule`; if they last as long."""
    ours = epoch_of_schedule(comparison.several)
    known = map(epoch_of_schedule, [comparison.one, *comparison.alone_runs])
    theirs = next(filter(None, known), None)
    alike = ours and theirs and 0.8 < ours[0] / ours[1] * theirs[1] / theirs[0] < 1.25
    return ours, theirs, alike
