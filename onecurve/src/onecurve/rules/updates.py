"""Neither updates nor the schedule depend on W. Checked if there are no epochs."""

from onecurve.evidence.found import found
from onecurve.evidence.learning_rates import BY_HAND, rates_differ, set_by, step_pairs
from onecurve.evidence.origins import COMPUTES

LEVEL = "LOOK"
MESSAGE = (
    "{ranks} ranks take as many steps as 1 process, with {ranks} times the samples per "
    "step"
)
FIX = "divide either the number of steps or the batch size by the number of ranks"
HIDDEN = True
ORIGIN = COMPUTES


def find_by_world(comparison):
    several = comparison.several
    pairs = step_pairs(comparison)
    if any(rates_differ(*pair) for pair in pairs) or several.readings(0, True):
        return
    varies = any(ours["rates"] != pairs[0][0]["rates"] for ours, _ in pairs)
    alike = all(ours["samples"] == theirs["samples"] for ours, theirs in pairs)
    if varies and alike:
        line = [pairs[0][0]["line"], *several.lines_of("made", schedules=True)][-1]
        told, cause = [], None
        if set_by(several) == BY_HAND:
            told = [f"the learning rate depends on the step number, set by {BY_HAND}"]
            cause = "rate"
        yield found(line, told, cause=cause, ranks=len(several.ranks))
