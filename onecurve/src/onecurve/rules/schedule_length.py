"""Its length counts one process's steps, or it is stepped W times per step."""

from onecurve.evidence.found import found
from onecurve.evidence.origins import COMPUTES

LEVEL = "LOOK"
MESSAGE = (
    "the schedule is longer or shorter than the training, depending on the number of "
    "ranks"
)
FIX = "count this rank's optimizer steps and step the scheduler once for each"
ORIGIN = COMPUTES


def find_by_world(comparison):
    ours, theirs, alike = schedules(comparison)
    by_steps = any(event["by_steps"] for event in comparison.several.of("source"))
    if not (ours and theirs) or alike or by_steps:
        return
    taken, length, line = ours
    alone, of_one, _ = theirs
    ranks = f"{len(comparison.several.ranks)} ranks"
    told = f"{ranks}: {taken:.0f} of {length} steps per epoch"
    yield found(line, [told, f"1 process: {alone:.0f} of {of_one}"])


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
    known = map(epoch_of_schedule, comparison.with_own_lengths)
    theirs = next(filter(None, known), None)
    alike = ours and theirs and 0.8 < ours[0] / ours[1] * theirs[1] / theirs[0] < 1.25
    return ours, theirs, alike
