"""The epoch number or the position in the epoch starts over, often after resuming."""

from onecurve.evidence.found import found
from onecurve.evidence.samples import first_orders

LEVEL = "LOOK"
MESSAGE = "epoch {later} repeats the sample order of epoch {earlier}"
FIX = "save epoch number and position in the epoch in the checkpoint, and load both"
RANKS = "one"


def find(seen):
    for epochs, lists in first_orders(seen):
        if lists[:1] == lists[1:2]:
            continue  # the rule `order`
        events = reversed(seen.of("weights"))  # so that an epoch's first one counts
        begun = {tuple(one["place"][1:3]): one["weights"] for one in events}
        weights = [begun.get((one["line"], one["number"])) for one in epochs]
        start = 0
        for later, one in enumerate(lists):
            if weights[0] and weights[later] == weights[0]:
                start = later  # the training starts over: nothing is resumed
            earlier = lists.index(one, start)
            if earlier < later and one != sorted(one):
                epoch = epochs[later]
                told = [f"it starts at {epoch['begun']}"]
                yield found(epoch["dealt"], told, later=later + 1, earlier=earlier + 1)
                break
