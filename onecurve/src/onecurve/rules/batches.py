"""The run hangs at the end of the epoch."""

from onecurve.evidence.found import found

# Asked by inspection.py when a run hangs.
LEVEL = "ERROR"
MESSAGE = "ranks have different numbers of batches in an epoch: {counts}"
FIX = "give all ranks the same number, or use Join"


def find_in_hang(seen, hang):
    """Find ranks with more batches per epoch than others, which causes a `hang`."""
    lengths = []
    for rank in seen.ranks:
        begun = [one for one in seen.of("begun", rank) if one["trains"]]
        lengths += begun[:1]
    counts = [one["batches"] for one in lengths]
    if len(counts) == len(seen.ranks) and len(set(counts)) > 1:
        yield found(lengths[0]["line"], hang.details, counts=counts)
