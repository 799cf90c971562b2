"""How long learning rate schedules last, on several ranks and in one process."""


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
