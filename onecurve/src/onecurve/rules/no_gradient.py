"""It holds tensors that the model no longer uses, or `zero_grad()` runs too late."""

from itertools import takewhile

from onecurve.evidence.found import found

LEVEL = "ERROR"
MESSAGE = "no parameter in the optimizer has a gradient"
FIX = "create the optimizer after the model is wrapped or sharded"
RANKS = "one"
BEFORE = "create the optimizer right after sharding, before the model's first call"
LATE = ["zero_grad() is called between backward() and step()"]
EARLY = "call zero_grad() before backward() or after step()"


def find(seen):
    steps = seen.of("before_step")
    if not steps or any(step["gradients"] for step in steps):
        return
    until = takewhile(lambda one: one["kind"] != "before_step", seen.events[0])
    before = list(until)
    calls = [one for one in before if one["kind"] in ("backward", "zero_grad")]
    kinds = [one["kind"] for one in calls]
    if "backward" in kinds and kinds[-1] == "zero_grad":
        yield found(calls[-1]["line"], LATE, fix=EARLY)
        return
    made = seen.values("made", "line") or [None]
    stale, count = steps[0]["stale"], steps[0]["count"]
    told = [f"{stale} of its {count} tensors are not the model's"]
    called = [one for one in before if one["kind"] in ("pass", "made")]
    calls = [one for one in called[:1] if seen.of("shard") and one["kind"] == "pass"]
    details = [f"the model's first call, at {one['line']}" for one in calls]
    yield found(made[-1], told * bool(stale) + details, fix=BEFORE if calls else None)
