"""Each rank has the statistics of its own data."""

from onecurve.evidence.evaluations import first_unlike, level_of
from onecurve.evidence.found import found

LEVEL = "ERROR"
MESSAGE = "ranks evaluate with different buffers: {name}"
FIX = "broadcast them from rank 0 before the evaluation"
FOLLOWS = ("by_world",)


def find(seen):
    kind, name, passes = first_unlike(seen)
    if kind == "buffers":
        yield found(passes[0]["line"], level=level_of(passes), name=name)
