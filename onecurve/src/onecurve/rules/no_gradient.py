"""It holds tensors that the model no longer uses, or `zero_grad()` runs too late."""

from onecurve.evidence.found import found
from onecurve.evidence.zero_grad import zeroed_late

LEVEL = "ERROR"
MESSAGE = "no parameter in the optimizer has a gradient"
FIX = "create the optimizer after the model is wrapped or sharded"
RANKS = "one"


def find(seen):
    steps = seen.of("before_step")
    if not steps or any(step["gradients"] for step in steps):
        return
    made = seen.lines_of("made", schedules=False) or [None]
    stale, count = steps[0]["stale"], steps[0]["count"]
    told = [f"{stale} of its {count} tensors are not the model's"]
    yield zeroed_late(seen) or found(made[-1], told if stale else [])
