"""Parts are cut to a multiple of W, so the same samples are lost in every epoch."""

import math

from onecurve.evidence.found import found

LEVEL = "LOOK"
MESSAGE = "{count} of {size} samples are never used by any rank"
FIX = "split one complete order among the ranks without dropping a remainder"
RANKS = "own batches"
EPOCHS = 8  # at most, to compare
CHANCE = 1e-3  # of what a sampler that skips others each time would never use


def find(seen):
    epochs = [one for one in map(seen.first_epochs, range(EPOCHS)) if one]
    lists = [[each["indices"] for each in one] for one in epochs]
    if len(lists) < 2 or lists[0] == lists[1]:
        return
    first = epochs[0][0]
    size = first["size"]
    taken = [set().union(*one) for one in lists]
    never = size - len(set().union(*taken))
    known = first["part"] is None and len({each["identity"] for each in epochs[0]}) == 1
    again = any(len(set(one)) < len(one) for one in lists[0])  # drawn with replacement
    if known and never and not again:
        expected = size * math.prod(1 - len(one) / size for one in taken)
        # https://en.wikipedia.org/wiki/Poisson_distribution, Chernoff's bound
        if never > expected and (math.e * expected / never) ** never < CHANCE:
            yield found(first["dealt"], count=never, size=size)
