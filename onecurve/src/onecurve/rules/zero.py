"""Nothing is learned, and the ranks exchange zeros."""

from onecurve.evidence.found import found
from onecurve.evidence.zero_grad import zeroed_late

LEVEL = "LOOK"
MESSAGE = "all gradients are 0"
FIX = "check what the loss depends on and whether a gradient reaches the parameters"


def find(seen):
    given = [step for each in seen.on_all("before_step") for step in each]
    if given and all(step["gradients"] and step["zero"] for step in given):
        yield zeroed_late(seen) or found(given[0]["line"])
