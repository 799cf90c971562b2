"""Its length counts one process's steps, or it is stepped W times per step."""

from onecurve.evidence.found import found
from onecurve.evidence.learning_rates import schedules
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
