"""Python draws a seed in each process, which sets the hash of a string and the order of
a set. So ranks number the same words differently. With one seed, datasets are equal.
"""

from onecurve.evidence import samples
from onecurve.evidence.found import found

LEVEL = "ERROR"
MESSAGE = "each rank has its own hash seed, and therefore a different dataset"
FIX = "build it from a sorted list, or use hashlib instead of hash()"
FOLLOWS = "datasets", "overlap", "by_world"


def find_by_world(comparison):
    # The runs in float64 share a seed.
    alike = comparison.several.takers().first_epochs()
    if len({epoch["identity"] for epoch in alike}) != 1:
        return
    for wrong, epochs in samples.shares(comparison.first.takers()):
        if wrong in (samples.OWN_DATA, samples.OWN_ORDER):
            yield found(epochs[0]["line"], cause="hash")
            return
