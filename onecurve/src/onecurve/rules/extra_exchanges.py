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
    counts = [sum(exchanged) for _, exchanged in seen.exchanges()]
    often = [count for count in counts if modules and count > modules]
    if len(often) > len(counts) / 2:
        yield found(seen.of("backward")[0]["line"], times=often[0] // modules)
