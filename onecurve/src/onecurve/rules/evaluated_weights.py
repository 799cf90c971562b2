"""Only rank 0 updates an average of the weights, or the average was copied before the
wrapper made the weights equal. It is a LOOK if all ranks evaluate the same samples.
"""

from onecurve.evidence.evaluations import first_unlike, level_of
from onecurve.evidence.found import found

LEVEL = "ERROR"
MESSAGE = "ranks evaluate with different weights: {name}"
FIX = "update averaged weights on every rank, starting from equal weights"
FOLLOWS = ("by_world",)
HIDDEN = True


def find(seen):
    kind, name, passes = first_unlike(seen)
    if kind == "weights":
        first = passes[0]
        networks = {rank: one["id"] for rank, one in enumerate(passes)}
        alone, where = seen.done_by_some(networks)
        told = [*where, f"evaluated at {first['line']}"]
        line = alone or first["made"] or first["line"]
        yield found(line, told, level_of(passes), name=name)
