"""The run hangs at the end of the epoch."""

from onecurve.evidence.found import found

# Asked by inspection.py when a run hangs.
LEVEL = "ERROR"
MESSAGE = "ranks have different numbers of batches in an epoch: {counts}"
FIX = "give all ranks the same number, or use Join"


def find_in_hang(seen, hang):
    """Find ranks with more batches per epoch than others, which causes a `hang`."""
    first = next(seen.together("begun", lambda one: one["trains"]), ())
    counts = [one["batches"] for one in first]
    if len(set(counts)) > 1:
        yield found(first[0]["line"], hang.details, counts=counts)
