"""The line is where it first appears. Findings about gradients follow from it."""

import math

from onecurve.evidence.found import found

LEVEL = "ERROR"
MESSAGE = "the loss is nan or infinite"
FIX = "find the first nan or infinite number; until then, ignore gradient findings"
FOLLOWS = ("gradient", "exchange", "weights", "clip", "evaluated_weights")
RANKS = "one"


def find(seen):
    for rank in seen.ranks:
        for number, event in enumerate(seen.of("backward", rank), start=1):
            if event["loss"] is not None and not math.isfinite(event["loss"]):
                told = [f"rank {rank}, backward pass {number}: {event['loss']}"]
                yield found(event["line"], told)
                return
