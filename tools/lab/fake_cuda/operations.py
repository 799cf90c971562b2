"""Two modes of PyTorch that see what a script computes on fake GPUs.

`Operations` sees every operation, those of the backward pass, of optimizers and of DDP
too. `Calls` sees what is called from Python, with its `device=`.
"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from tools.lab.fake_cuda.clock import current_stream, start_matmul
from tools.lab.fake_cuda.placement import get_place, set_place, tensors_in
from tools.lab.fake_cuda.state import STATE, device_name

ANY_DEVICES = {"aten::copy_", "aten::set_", "aten::_has_same_storage_numel"}
INDEXING = {"aten::index", "aten::index_put_"}
MATMULS = {"aten::mm", "aten::addmm"}
READS = {"aten::_local_scalar_dense", "aten::equal"}  # the CPU waits for the GPU


class Operations(TorchDispatchMode):
    """Refuses operations as CUDA and NCCL do, and gives their results a place."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = func._schema.name
        given = tensors_in((args, kwargs))
        groups = groups_of_foreach(args) if "::_foreach" in name else [given]
        if name.startswith("c10d::"):
            check_collective(given)
        elif name not in ANY_DEVICES:
            for group in groups:
                check_devices(func, group)
        places = [place for place in map(get_place, given) if place]
        gpus = [place for place in places if place != "cpu"]
        if gpus and name in READS:
            current_stream(gpus[0]).synchronize()
        if gpus and name in MATMULS:
            start_matmul(gpus[0])
        with torch._C.DisableTorchFunction():  # the script has not called this
            result = func(*args, **kwargs)
        made = tensors_in(result)
        if len(made) == len(groups) > 1:
            found = [get_place(group[0]) for group in groups]
        else:
            found = (gpus or places or [None])[:1] * len(made)
        for tensor, place in zip(made, found, strict=True):
            if place and get_place(tensor) is None:
                set_place(tensor, place)
        return result


def groups_of_foreach(args):
    """Return the tensors that meet in torch._foreach_…: the n-th of each list."""
    lists = [arg for arg in args if isinstance(arg, list | tuple)]
    return [tensors_in(group) for group in zip(*lists, strict=False)]


def check_devices(func, given):
    """Raise RuntimeError where CUDA would, for the tensors given to an operation.

    They have to be on one device. Tensors of the CPU without dimensions are numbers,
    which may mix with a GPU's, except in the first place of what is changed.
    """
    mutable = func._schema.is_mutable
    if func._schema.name in INDEXING:  # indices may be on the CPU
        given = [t for t in given if t is given[0] or get_place(t) != "cpu"]
    placed = [tensor for tensor in given if get_place(tensor)]
    found = set()
    for number, tensor in enumerate(placed):
        place = get_place(tensor)
        if place != "cpu" or tensor.dim() or (mutable and number == 0):
            found.add(place)
    if len(found) > 1:
        first, second, *_ = sorted(found, reverse=True)
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two "
            f"devices, {first} and {second}!"
        )


def check_collective(given):
    """Raise RuntimeError where NCCL would: for the CPU, for a GPU of two ranks."""
    places = {get_place(tensor) for tensor in given} - {None}
    if not STATE.nccl or not places:
        return
    if "cpu" in places:
        raise RuntimeError("No backend type associated with device type cpu")
    store = dist.distributed_c10d._get_default_store()
    rank = dist.get_rank()
    place = min(places)
    machine = os.environ.get("GROUP_RANK", "0")
    store.set(f"gpu of {rank}", f"{machine} {place}")
    for other in range(dist.get_world_size()):
        other_place = store.get(f"gpu of {other}").decode()
        if other != rank and other_place == f"{machine} {place}":
            raise RuntimeError(
                f"ncclInvalidUsage: Duplicate GPU detected : rank {rank} and rank "
                f"{other} both on CUDA device {place}"
            )


class Calls(TorchFunctionMode):
    """Makes tensors where `device=` says, and writes down what layers do."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        device = kwargs.pop("device", None)
        kwargs.pop("pin_memory", None)
        result = func(*args, **kwargs)
        for made in tensors_in(result):
            if device is not None:
                set_place(made, device_name(device))
            elif get_place(made) is None:
                set_place(made, "cpu")
        if func is nn.functional.linear:
            log_layer(result)
        return result


def log_layer(result):
    """Write down that a linear layer has computed, and when its gradient comes."""
    facts = {"device": get_place(result), "images": len(result)}
    STATE.log("forward", graph=result.requires_grad, **facts)
    if result.requires_grad:
        result.register_hook(lambda _: STATE.log("backward", **facts))


def install():
    """Have both modes see whatever this process computes from now on."""
    Operations().__enter__()
    Calls().__enter__()
