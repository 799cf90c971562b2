"""Where tensors are: each storage has the name of its fake device, its place.

So views, and a parameter's new data, have the place too. All numbers are in the memory
of the CPU, which computes with them.
"""

import torch
from torch.utils._pytree import tree_leaves

from tools.lab.fake_cuda.devices import STATE, device_name, refused, synchronize
from tools.watch.replace import replace


def get_place(tensor):
    """Return "cpu", "cuda:0" …, or None for a tensor that never got a place.

    C++ makes such tensors, DDP's buckets for example. They get the place of what is
    first put there.
    """
    with torch._C.DisableTorchFunction():
        return getattr(tensor.untyped_storage(), "place", None)


def set_place(tensor, place):
    """Put a tensor's storage on a device, given by its name."""
    with torch._C.DisableTorchFunction():
        tensor.untyped_storage().place = place


def tensors_in(values):
    """Return the tensors in arguments or results, however nested."""
    return [value for value in tree_leaves(values) if isinstance(value, torch.Tensor)]


class Move(torch.autograd.Function):
    """A copy on another device, whose gradient goes back to where it came from."""

    @staticmethod
    def forward(ctx, tensor, place):
        ctx.origin = get_place(tensor) or "cpu"
        copy = tensor.clone()
        set_place(copy, place)
        return copy

    @staticmethod
    def backward(ctx, gradient):
        return Move.apply(gradient, ctx.origin), None


def move(tensor, place, non_blocking=False):
    """Return the tensor on another device: itself where it is there."""
    origin = get_place(tensor) or "cpu"
    if place == origin:
        return tensor
    if place == "cpu" and not non_blocking:
        synchronize()
    return Move.apply(tensor, place)


def to(original, tensor, *args, non_blocking=False, **kwargs):
    """Stand in for Tensor.to(), which takes a device, a dtype, both or a tensor."""
    device = None
    dtype = None
    for value in [*args, *kwargs.values()]:
        if isinstance(value, torch.dtype):
            dtype = value
        elif isinstance(value, torch.Tensor):
            device = value.device
            dtype = value.dtype
        elif type(value) in (str, int, torch.device):  # but no bool
            device = value
    if dtype:
        tensor = original(tensor, dtype)
    if device is None:
        return tensor
    if str(device) == "meta":
        return original(tensor, device)
    return move(tensor, device_name(device), non_blocking)


def cuda(_, tensor, device=None, non_blocking=False, **__):
    """Stand in for Tensor.cuda()."""
    return move(tensor, device_name(device), non_blocking)


def location_to_save(storage):
    """Return the device that torch.save writes down for a storage, or None: the CPU."""
    place = getattr(storage, "place", None)
    return None if place == "cpu" else place


def restore(storage, location):
    """Put a storage that torch.load has read on the device written down for it."""
    if location.startswith("cuda"):
        storage.place = device_name(location)
        STATE.log("restored", device=storage.place)
        return storage


def install():
    """Replace what torch says of a tensor's device, and what moves a tensor."""
    device = property(lambda tensor: torch.device(get_place(tensor) or "cpu"))
    replace("torch:Tensor.device", device)
    replace("torch:Tensor.is_cuda", property(lambda t: t.device.type == "cuda"))
    replace("torch:Tensor.get_device", lambda _, t: t.device.index if t.is_cuda else -1)
    replace("torch:Tensor.to", to)
    replace("torch:Tensor.cpu", lambda _, tensor, **__: move(tensor, "cpu"))
    replace("torch:Tensor.cuda", cuda)
    replace("torch:Tensor.pin_memory", lambda _, tensor, *__: tensor.clone())
    replace("torch:Tensor.tolist", lambda original, tensor: original(tensor.cpu()))
    replace("torch:set_default_device", refused("torch.set_default_device"))
    torch.serialization.register_package(5, location_to_save, restore)
