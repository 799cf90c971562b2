"""`set_epoch` is missing. The loss still falls. It is a LOOK if nothing is shuffled."""

from onecurve.evidence.found import found
from onecurve.evidence.origins import ORDERS
from onecurve.evidence.samples import FEW, first_orders, flattened

LEVEL = "ERROR"
MESSAGE = "every epoch uses the same sample order"
FIX = "call sampler.set_epoch(epoch) before each epoch"
RANKS = "one"
ORIGIN = ORDERS
ANEW = "draw a new order in each epoch: add the epoch to the seed"
EPOCH = 3  # minimum number of batches with an order


def find(seen):
    (says,) = seen.of("source") or [{}]
    if seen.of("cut") and says.get("by_steps") and says["sets_epoch"]:
        return  # it counts epochs by their steps, and we ended them early
    for epochs, lists in first_orders(seen):
        if lists[:1] == lists[1:2]:
            level = "LOOK" if lists[0] == sorted(lists[0]) else None
            told = [f"epochs start at {epochs[0]['begun']}"]
            yield found(epochs[0]["dealt"], told, level)
    yield from in_stream(seen.streamed(0))
    shuffles = any(event["shuffles"] for event in seen.of("source"))
    if shuffles and not seen.readings(0, True):
        yield from by_hand([event for event in seen.of("pass") if event["grad"]])


def in_stream(epochs):
    """Find streams that restart with the same samples, in or after an epoch."""
    for epoch in epochs[:1]:
        again = [flattened(other["rows"]) for other in epochs[1:]]
        first = flattened(epoch["rows"])
        if first[:1] and first[0] in first[1:]:
            again.append(first[first.index(first[0], 1) :])
        for other in again:
            length = min(len(first), len(other))
            if length > FEW and first[:length] == other[:length]:
                yield found(epoch["dealt"], level="LOOK")
                return


def by_hand(passes):
    """Find epochs without a DataLoader that use the same batches in the same order."""
    length = period([event["rows"] for event in passes])
    if length >= EPOCH:
        told = [f"the same {length} batches repeat"]
        yield found(passes[0]["line"], told, "LOOK", ANEW)


def period(batches):
    """Return after how many batches, lists of samples, the sequence repeats, or 0."""
    for length in range(1, len(batches) // 2 + 1):
        if batches[0] and batches[:length] == batches[length : 2 * length]:
            return length
    return 0
