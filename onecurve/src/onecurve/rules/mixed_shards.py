"""Each rank set its own seed first, so shards of different models are put together."""

from onecurve.evidence.found import found
from onecurve.evidence.seen import first_split

LEVEL = "ERROR"
MESSAGE = "FSDP shards weights that differ between ranks: {name}"
FIX = "seed all ranks alike before building the model, or load weights after sharding"


def find(seen):
    for each in seen.together("sharded"):
        name = first_split([event["weights"] for event in each])
        if name:
            yield found(each[0]["line"], name=name.partition(",")[0])
            return
