"""With tensor parallelism, these ranks compute one batch together. But a sampler gives
each its own share, or each has its own seed.
"""

from onecurve.evidence.found import found
from onecurve.evidence.seeds import seeds_set
from onecurve.evidence.seen import Seen

LEVEL = "ERROR"
MESSAGE = "ranks that share a model's layers train on different batches"
FIX = "use the same seed and no per-rank sampler within a tensor-parallel group"
FOLLOWS = ("gradient", "weights", "clip", "evaluated_weights")


def find(seen):
    if any(event["parts"] for event in list(seen.of("split"))[:1]):
        return  # the first layer expects a part of the input on each rank
    for passes in seen.training_passes():
        for group in seen.groups():
            rows = [passes[rank]["rows"] for rank in group]
            if any(one != rows[0] for one in rows):
                line = passes[group[0]]["line"]
                own = seeds_by_rank(seen, group)
                yield found(own or line, [f"used at {line}"] if own else [])
                return


def seeds_by_rank(seen, group):
    """Return the line that last seeds a group's ranks differently, or None."""
    if seen.readings(0, True):
        return None  # loaders don't draw batches from these seeds
    seeds = seeds_set(Seen([seen.events[rank] for rank in group]))
    return next((line for line, alike in seeds.values() if not alike), None)
