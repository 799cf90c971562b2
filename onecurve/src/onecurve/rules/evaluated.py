"""The result is right but takes W times the work."""

from onecurve.evidence.evaluations import are_whole, read_together
from onecurve.evidence.found import found

LEVEL = "SLOW"
MESSAGE = "every rank evaluates all {size} samples"
FIX = "evaluate one share per rank"
FOLLOWS = ("by_world",)
RANKS = "own batches"


def find(seen):
    for line, epochs in read_together(seen):
        if are_whole(epochs):
            yield found(line, size=len(epochs[0]["indices"]))
