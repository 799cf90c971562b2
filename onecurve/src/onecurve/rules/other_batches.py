"""With tensor parallelism, these ranks compute one batch together. But a sampler gives
each its own share, or each has its own seed.
"""

from onecurve.evidence.found import found
from onecurve.evidence.seeds import seeded_unlike
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
                loads = seen.readings(0, True)  # loaders don't draw batches from seeds
                events = [seen.events[rank] for rank in group]
                own = None if loads else seeded_unlike(Seen(events))
                yield found(own or line, [f"used at {line}"] if own else [])
                return
