"""The file from rank 0 contains tensors from `to_local()`, or sharded tensors."""

from onecurve.evidence.found import found

LEVEL = "ERROR"
MESSAGE = "only some ranks save their shards of the weights"
FIX = (
    "call get_model_state_dict with full_state_dict=True on all ranks, or use "
    "torch.distributed.checkpoint"
)
ORIGIN = "to_local|state_dict"


def find(seen):
    saved = [events for events in seen.on_all("saved_part") if events]
    if 0 < len(saved) < len(seen.ranks):
        yield found(saved[0][0]["line"])
