"""Run one process without FSDP and tensor parallelism, on whole models.

FSDP's methods exist but do nothing. Without a process group, the world size is 1.
"""

from functools import partial

import torch

from onecurve.set_up.replace import replace


def whole(original, module, *args, **options):
    """Replace fully_shard and parallelize_module: return the module unchanged."""
    from torch.distributed.fsdp import FSDPModule

    for name in vars(FSDPModule):
        if not (name.startswith("_") or hasattr(module, name)):
            object.__setattr__(module, name, nothing)
    return module


def nothing(*args, **options):
    """Replace an FSDP method."""


def itself(tensor, *args, **options):
    """Replace full_tensor and to_local: return the tensor, which is whole."""
    return tensor


def of_one(answer, original, *args, **options):
    """Replace a function's result if there is no process group."""
    if torch.distributed.is_initialized():
        return original(*args, **options)
    return answer


def install():
    """Install the replacements above; DTensor keeps its own methods."""
    torch.Tensor.full_tensor = itself
    torch.Tensor.to_local = itself
    if torch.distributed.is_available():
        replace("torch.distributed.fsdp:fully_shard", whole)
        parallel = "torch.distributed.tensor.parallel"
        replace(f"{parallel}:parallelize_module", whole)
        replace("torch.distributed:get_world_size", partial(of_one, 1))
        replace("torch.distributed:get_rank", partial(of_one, 0))
