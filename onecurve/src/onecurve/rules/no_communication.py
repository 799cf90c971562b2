"""There is no process group, or nothing uses it. Each rank's loss still falls."""

from onecurve.evidence.found import found

LEVEL = "ERROR"
MESSAGE = "ranks never communicate: each trains its own model"
FIX = "call init_process_group, wrap the model in DDP and use a DistributedSampler"


def find(seen):
    meet = seen.of("ddp") or seen.of("split") or seen.of("collective_call")
    if seen.of("step") and not meet:
        yield found(seen.of("step")[0]["line"])
