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
        for later, one in enumerate(lists):
            if one in lists[:later] and one != sorted(one):
                epoch, earlier = epochs[later], lists.index(one) + 1
                told = [f"it starts at {epoch['begun']}"]
                yield found(epoch["dealt"], told, later=later + 1, earlier=earlier)
                break
