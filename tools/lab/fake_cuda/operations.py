"""Two PyTorch modes that see what a script computes on fake GPUs.

`Operations` sees every operation, including those in the backward pass, optimizers and
DDP. `Calls` sees calls from Python, with their `device=`.
"""

import re
import sys

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from onecurve.api import tensors_in
from tools.lab.fake_cuda.devices import STATE, UPDATE, device_name, synchronize
from tools.lab.fake_cuda.parallel import check_collective
from tools.lab.fake_cuda.placement import get_place, set_place

ANY_DEVICES = {"aten::copy_", "aten::set_", "aten::_has_same_storage_numel"}
VIEWS = {"aten::alias", "aten::detach", "aten::select", "aten::view"}  # keep the place
INDEXING = {"aten::index", "aten::index_put_"}
MATMULS = {"aten::mm", "aten::addmm"}
UPDATES = {"aten::add_", "aten::_foreach_add_"}
READS = {"aten::_local_scalar_dense", "aten::equal"}  # the CPU waits for the GPU
MODES = "/torch/|/fake_cuda/|/set_up/float64.py"  # between script and operation
GENERATOR = "Expected a '{}' device type for generator but found '{}'"
INDICES = (
    "indices should be either on cpu or on the same device as the indexed tensor ({})"
)
SAME = "Expected all tensors to be on the same device, but"


class Operations(TorchDispatchMode):
    """Raises CUDA's and NCCL's errors, and places the results."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = func._schema.name
        if name in VIEWS:
            with torch._C.DisableTorchFunction():
                return func(*args, **kwargs)
        given = named_tensors(func, args, kwargs)
        if name.startswith("c10d::"):
            check_collective([tensor for _, tensor in given])
        elif name not in ANY_DEVICES and "::_foreach" not in name:
            check_devices(func, given)
        places = [get_place(tensor) or "" for _, tensor in given]
        place = max(places, default="")  # a GPU, if there is one
        if place > "cpu" and name in READS and not is_judge(sys._getframe(1)):
            synchronize()
        if place > "cpu" and name in MATMULS:
            STATE.start(STATE.matmul)
        if place > "cpu" and name in UPDATES:
            changed = [tensor for word, tensor in given if word == "self"]
            STATE.start(UPDATE * sum(tensor.dim() > 0 for tensor in changed))
        with torch._C.DisableTorchFunction():  # not the script's call
            result = func(*args, **kwargs)
        for made in tensors_in(result):
            if place and get_place(made) is None:
                set_place(made, place)
        return result


def is_judge(frame):
    """Return whether the inspector's hooks made a call, not the script.

    Their reads take no time. Their modes also pass on the script's calls.
    """
    while frame and re.search(MODES, frame.f_code.co_filename):
        frame = frame.f_back
    return frame is not None and frame.f_globals["__name__"].startswith("onecurve.")


def named_tensors(func, args, kwargs):
    """Return (parameter's name, tensor) for each tensor given to an operation."""
    names = [argument.name for argument in func._schema.arguments]
    values = [*zip(names, args, strict=False), *kwargs.items()]
    found = []
    for name, value in values:
        found += [(name, tensor) for tensor in tensors_in(value)]
    return found


def check_devices(func, given):
    """Raise RuntimeError like CUDA unless tensors of `named_tensors` are on one device.

    CPU scalars may mix with a GPU's tensors, unless the operation changes them.
    """
    indexing = func._schema.name in INDEXING  # indices may be on the CPU
    expected = None
    for number, (name, tensor) in enumerate(given):
        place = get_place(tensor)
        is_target = func._schema.is_mutable and number == 0
        may_mix = indexing and number > 0 or not tensor.dim() and not is_target
        if place is None or (place == "cpu" and may_mix):
            continue
        expected = expected or place
        if place == expected:
            continue
        if indexing and name == "indices":
            raise RuntimeError(INDICES.format(expected))
        raise RuntimeError(f"{SAME} {mismatch(func, name, place, expected)}")


def mismatch(func, name, place, expected):
    """Return the end of CUDA's message for a parameter on an unexpected device."""
    operation = func._schema.name.removeprefix("aten::")
    if torch.Tag.pointwise in func.tags:
        first, second = sorted([expected, place], key=lambda name: name == "cpu")
        return f"found at least two devices, {first} and {second}!"
    return (
        f"got {name} is on {place}, different from other tensors on {expected} "
        f"(when checking argument in method wrapper_CUDA_{operation})"
    )


class Calls(TorchFunctionMode):
    """Places new tensors where `device=` says, and records what layers do."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if func is torch._C._nn._parse_to:  # parses the arguments of nn.Module.to
            return func(*args, **kwargs)
        device = kwargs.pop("device", None)
        kwargs.pop("pin_memory", None)
        result = func(*args, **kwargs)
        for made in tensors_in(result):
            if device is not None:
                set_place(made, device_name(device))
            elif get_place(made) is None:
                is_like = func is torch.Tensor.new_tensor
                set_place(made, get_place(args[0]) if is_like else "cpu")
            if kwargs.get("generator"):
                check_generator(kwargs["generator"], get_place(made))
        if func is nn.functional.linear:
            log_layer(result)
        return result


def check_generator(generator, place):
    """Raise RuntimeError like CUDA if a generator is for another kind of device."""
    kinds = place.partition(":")[0], generator.device.type
    if kinds[0] != kinds[1]:
        raise RuntimeError(GENERATOR.format(*kinds))


def log_layer(result):
    """Record a linear layer's forward pass, and later its backward pass."""
    facts = {"device": get_place(result), "images": len(result)}
    STATE.log("forward", graph=result.requires_grad, **facts)
    if result.requires_grad:
        result.register_hook(lambda _: STATE.log("backward", **facts))


def install():
    """Turn both modes on for the rest of this process."""
    Operations().__enter__()
    Calls().__enter__()
