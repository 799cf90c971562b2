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
        number = 0
        bad = None
        for event in seen.events[rank]:
            number += event["kind"] == "backward"
            if event["kind"] == "zero_grad":
                bad = None  # no step used it
            elif event["kind"] == "step" and bad:
                yield bad
                return
            elif event["kind"] == "backward" and not math.isfinite(event["loss"] or 0):
                told = [f"rank {rank}, backward pass {number}: {event['loss']}"]
                bad = bad or found(event["line"], told)
