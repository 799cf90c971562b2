"""Parts are cut to a multiple of W, so the same samples are lost in every epoch."""

from onecurve.evidence.found import found

LEVEL = "LOOK"
MESSAGE = "{count} of {size} samples are never used by any rank"
FIX = "split one complete order among the ranks without dropping a remainder"
RANKS = "own batches"
MOSTLY = 0.75  # of the samples that an epoch skips


def find(seen):
    epochs = [seen.first_epochs(number) for number in range(2)]
    if not all(epochs):
        return
    lists = [[each["indices"] for each in one] for one in epochs]
    first = epochs[0][0]
    taken = [set().union(*one) for one in lists]
    lacks = [first["size"] - len(one) for one in taken]
    never = first["size"] - len(taken[0] | taken[1])
    known = first["part"] is None and len({each["identity"] for each in epochs[0]}) == 1
    again = any(len(set(one)) < len(one) for one in lists[0])  # drawn with replacement
    most = never > max(2, MOSTLY * min(lacks))  # others are skipped by chance
    if known and not again and lists[0] != lists[1] and most:
        yield found(first["dealt"], count=never, size=first["size"])
