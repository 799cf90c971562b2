"""The run hangs at the end of the epoch unless all ranks leave it after the same step.
It is an ERROR if the run hangs.
"""

from onecurve.evidence.found import found

LEVEL = "LOOK"
MESSAGE = "ranks have different numbers of batches in an epoch: {counts}"
FIX = "give all ranks the same number, or use Join"
RANKS = "own batches"


def find(seen):
    first = next(seen.together("begun", lambda one: one["trains"]), ())
    counts = [one["batches"] for one in first]
    if len(set(counts)) > 1 and not seen.of("join"):
        yield found(first[0]["line"], counts=counts)
