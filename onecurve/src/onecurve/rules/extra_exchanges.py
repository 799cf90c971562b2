"""Gradients are exchanged after each accumulated batch. Only time is lost."""

from onecurve.evidence.found import found

LEVEL = "SLOW"
MESSAGE = "gradients are exchanged {times} times per step"
FIX = (
    "use no_sync() or set_requires_gradient_sync(False) on all but the last batch of a "
    "step"
)


def find(seen):
    modules = len(seen.of("ddp")) or len(seen.of("shard"))
    if len(seen.of("ddp")) > 1:
        return  # each may have its own optimizer
    steps = list(exchanges(seen.events[0]))
    often = [counts for counts in steps if modules and sum(counts) > modules]
    once = [one for one in steps if one not in often and len(one) in map(len, often)]
    if len(often) > len(steps) / 2 or (often and once):
        told = [f"in {len(often)} of {len(steps)} steps"] if once else []
        line = seen.of("backward")[0]["line"]
        yield found(line, told, times=sum(often[0]) // modules)


def exchanges(events):
    """Yield how often each backward pass before a step begins exchanges gradients.

    A closure computes the first ones before its step begins, and others within it.
    """
    counts = []
    for event in events:
        if event["kind"] == "backward":
            counts.append(0)
        elif event["kind"] == "collective_call" and counts:
            name = event["name"]
            counts[-1] += name == "backward" or "reduce_scatter" in name
        elif event["kind"] == "before_step":
            yield counts[:]
        elif event["kind"] == "step":
            counts = []
