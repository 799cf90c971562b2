"""`DistributedSampler` pads the dataset until all ranks have equally many samples."""

from collections import Counter

from onecurve.evidence.evaluations import are_whole, read_together
from onecurve.evidence.found import found
from onecurve.evidence.samples import dealt, flattened

LEVEL = "ERROR"
MESSAGE = "evaluation counts {twice} of {size} samples twice"
FIX = "use Subset(test, range(rank, len(test), world_size)), which adds no padding"
FOLLOWS = ("by_world",)
RANKS = "own batches"


def find(seen):
    gathers = any("gather" in call["name"] for call in seen.of("collective_call"))
    merged = {event["twice"] for event in seen.of("gathered")}  # by sample numbers
    for _, epochs in read_together(seen):
        lists = [epoch["indices"] for epoch in epochs]
        twice = sum(count > 1 for count in Counter(flattened(lists)).values())
        if are_whole(epochs) or not twice or twice in merged:
            continue
        place, fix = dealt(epochs)
        # after gathering, a script may drop the padding: at most one sample per rank
        level = "LOOK" if gathers and twice < len(epochs) else None
        yield found(place, [], level, fix, twice=twice, size=epochs[0]["size"])
