"""Only rank 0 updates an average of the weights, or the average was copied before the
wrapper made the weights equal. It is a LOOK if all ranks evaluate the same samples.
"""

from onecurve.evidence.evaluations import first_unlike, level_of
from onecurve.evidence.found import found
from onecurve.evidence.seen import changed_by

LEVEL = "ERROR"
MESSAGE = "ranks evaluate with different weights: {name}"
FIX = "update averaged weights on every rank, starting from equal weights"
FOLLOWS = ("by_world",)
HIDDEN = True


def find(seen):
    kind, name, passes = first_unlike(seen)
    if kind == "weights":
        first = passes[0]
        changed, by_all, told = changed_by(dict(enumerate(passes)), name)
        if by_all or not changed:
            changed, told = first["made"] or first["line"], []
        told = [*told, f"evaluated at {first['line']}"]
        yield found(changed, told, level_of(passes), name=name)
