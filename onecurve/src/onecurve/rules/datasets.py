"""The data is drawn without a common seed, or each rank reads its own files, which may
be what you meant. It is an ERROR if each rank also uses only a share of its dataset.
"""

from onecurve.evidence import samples
from onecurve.evidence.found import found
from onecurve.evidence.origins import BY_RANK

LEVEL = "LOOK"
MESSAGE = "each rank has a different dataset"
FIX = "build the same dataset on all ranks, then give each rank a share"
FOLLOWS = ("by_world",)
RANKS = "own batches"
ORIGIN = BY_RANK
ONE_PART = "use a sampler over all of the data or one part per rank, not both"


def find(seen):
    for wrong, epochs in samples.shares(seen):
        if wrong != samples.OWN_DATA:
            continue
        line = epochs[0]["line"]
        count = len(set().union(*(epoch["contents"] for epoch in epochs)))
        sizes = [epoch["size"] for epoch in epochs]
        used = [len(epoch["indices"]) for epoch in epochs]
        details = [
            f"{count} different samples were compared, none is on more than one rank",
            f"of {sizes} samples, the ranks use {used}",
        ]
        if all(samples.is_share(epoch, len(epochs)) for epoch in epochs):
            details.append("each rank shards its own dataset as if all ranks shared it")
            yield found(line, details, "ERROR", ONE_PART)
        else:
            yield found(line, details)
