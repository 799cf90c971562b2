"""One process without what splits a model: FSDP and tensor parallelism leave it whole.

What FSDP adds to a module is there, and does nothing. Where a script joins no process
group alone, it is told that it is the only process of one.
"""

from functools import partial

import torch

from onecurve.replace import replace


def whole(original, module, *args, **options):
    """In place of fully_shard and parallelize_module: the module as it is."""
    for name in fsdp_methods():
        if not hasattr(module, name):
            object.__setattr__(module, name, nothing)
    return module


def fsdp_methods():
    """Return the names of the methods that FSDP adds to a module."""
    from torch.distributed.fsdp import FSDPModule

    return [name for name in vars(FSDPModule) if not name.startswith("_")]


def nothing(*args, **options):
    """In place of a method of FSDP's."""


def itself(tensor, *args, **options):
    """In place of full_tensor and to_local: a tensor that is whole, and here."""
    return tensor


def of_one(answer, original, *args, **options):
    """In place of a function that answers so where there is no process group."""
    if torch.distributed.is_initialized():
        return original(*args, **options)
    return answer


def install():
    """Put the functions above in place; a DTensor keeps its own."""
    torch.Tensor.full_tensor = itself
    torch.Tensor.to_local = itself
    if torch.distributed.is_available():
        replace("torch.distributed.fsdp:fully_shard", whole)
        parallel = "torch.distributed.tensor.parallel"
        replace(f"{parallel}:parallelize_module", whole)
        replace("torch.distributed:get_world_size", partial(of_one, 1))
        replace("torch.distributed:get_rank", partial(of_one, 0))
