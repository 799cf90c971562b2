"""It holds tensors that the model no longer uses, or `zero_grad()` runs too late."""

from itertools import takewhile

from onecurve.evidence.found import found

LEVEL = "ERROR"
MESSAGE = "no parameter in the optimizer has a gradient"
FIX = "create the optimizer after the model is wrapped or sharded"
RANKS = "one"
LATE = ["zero_grad() is called between backward() and step()"]
EARLY = "call zero_grad() before backward() or after step()"


def find(seen):
    steps = seen.of("before_step")
    if not steps or any(step["gradients"] for step in steps):
        return
    before = takewhile(lambda one: one["kind"] != "before_step", seen.events[0])
    calls = [one for one in before if one["kind"] in ("backward", "zero_grad")]
    kinds = [one["kind"] for one in calls]
    if "backward" in kinds and kinds[-1] == "zero_grad":
        yield found(calls[-1]["line"], LATE, fix=EARLY)
        return
    made = seen.lines_of("made", schedules=False) or [None]
    stale, count = steps[0]["stale"], steps[0]["count"]
    told = [f"{stale} of its {count} tensors are not the model's"]
    yield found(made[-1], told if stale else [])
