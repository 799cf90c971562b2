"""`DistributedSampler` pads the dataset until all ranks have equally many samples. Or
each rank takes a share of its own order, such as that of a set.
"""

from collections import Counter

from onecurve.evidence import samples
from onecurve.evidence.evaluations import are_whole, read_together
from onecurve.evidence.found import found

LEVEL = "ERROR"
MESSAGE = "evaluation counts {twice} of {size} samples twice"
FIX = "use Subset(test, range(rank, len(test), world_size)), which adds no padding"
FOLLOWS = ("by_world",)
RANKS = "own batches"


def find(seen):
    gathers = any("gather" in call["name"] for call in seen.of("collective_call"))
    merged = {event["twice"] for event in seen.of("gathered")}  # by sample numbers
    for _, epochs in read_together(seen):
        if len({epoch["identity"] for epoch in epochs}) > 1:
            yield from in_own_orders(seen, epochs)
            continue
        lists = [epoch["indices"] for epoch in epochs]
        twice = sum(count > 1 for count in Counter(samples.flattened(lists)).values())
        if are_whole(epochs) or not twice or twice in merged:
            continue
        place, fix = samples.dealt(epochs)
        # after gathering, a script may drop the padding: at most one sample per rank
        level = "LOOK" if gathers and twice < len(epochs) else None
        yield found(place, [], level, fix, twice=twice, size=epochs[0]["size"])


def in_own_orders(seen, epochs):
    """Find samples that ranks evaluate twice because each orders the dataset itself."""
    if samples.wrong_in(seen, epochs) == samples.OWN_ORDER:
        twice = samples.used_twice(epoch["contents"] for epoch in epochs)
        told = ["each rank orders the dataset differently"]
        shared = all(samples.is_share(one, len(epochs)) for one in epochs)
        level = None if shared else "LOOK"  # each may draw samples of its own
        facts = {"twice": twice, "size": epochs[0]["size"]}
        yield found(epochs[0]["line"], told, level, samples.ALIKE, **facts)
