"""Where tensors are: each storage stores the name of its fake device, its place.

So views and a parameter's new data share its place. All numbers are in CPU memory.
"""

import torch

from onecurve.api import replace
from tools.lab.fake_cuda.devices import STATE, device_name, synchronize


def get_place(tensor):
    """Return "cpu" or "cuda:0", or None for a tensor from C++ without content."""
    with torch._C.DisableTorchFunction():
        return getattr(tensor.untyped_storage(), "place", None)


def set_place(tensor, place):
    """Set the place of a tensor's storage."""
    with torch._C.DisableTorchFunction():
        tensor.untyped_storage().place = place


def move(tensor, place, non_blocking=False):
    """Return the tensor on a device, itself if it is already there."""
    origin = get_place(tensor) or "cpu"
    if place == origin:
        return tensor
    if place == "cpu" and not non_blocking:
        synchronize()
    copy = tensor.clone()
    set_place(copy, place)
    if copy.requires_grad:  # its gradient moves back to the tensor's device
        copy.register_hook(lambda gradient: move(gradient, origin))
    return copy


def to(original, tensor, *args, **options):
    """Replace Tensor.to(), which accepts a device, a dtype, both or a tensor."""
    names = ["device", "dtype", "non_blocking", "copy"]
    if args and isinstance(args[0], torch.Tensor):
        args = args[0].device, args[0].dtype, *args[1:]
    elif args and isinstance(args[0], torch.dtype):
        names.remove("device")
    options.update(zip(names, args, strict=False))
    device = options.pop("device", None)
    non_blocking = options.pop("non_blocking", False)
    if str(device) == "meta":
        return original(tensor, device, **options)
    tensor = original(tensor, **options)
    if device is None:
        return tensor
    return move(tensor, device_name(device), non_blocking)


def cuda(_, tensor, device=None, non_blocking=False, **__):
    return move(tensor, device_name(device), non_blocking)


def numpy(original, tensor, **options):
    """Replace Tensor.numpy(), which refuses a GPU's tensor."""
    if tensor.is_cuda:
        raise TypeError(
            f"can't convert {tensor.device} device type tensor to numpy. Use "
            "Tensor.cpu() to copy the tensor to host memory first."
        )
    return original(tensor, **options)


def restore(storage, location):
    """Put a storage that torch.load has read on the device that the file names."""
    if location.startswith("cuda"):
        storage.place = device_name(location)
        STATE.log("restored", device=storage.place)
        return storage


def install():
    """Replace what reports a tensor's device and what moves a tensor."""
    device = property(lambda tensor: torch.device(get_place(tensor) or "cpu"))
    replace("torch:Tensor.device", device)
    replace("torch:Tensor.is_cuda", property(lambda t: t.device.type == "cuda"))
    replace("torch:Tensor.is_cpu", property(lambda t: t.device.type == "cpu"))
    replace("torch:Tensor.get_device", lambda _, t: t.device.index if t.is_cuda else -1)
    replace("torch:Tensor.to", to)
    replace("torch:Tensor.cpu", lambda _, tensor, **__: move(tensor, "cpu"))
    replace("torch:Tensor.cuda", cuda)
    replace("torch:Tensor.pin_memory", lambda _, tensor, *__: tensor.clone())
    replace("torch:Tensor.type_as", lambda _, tensor, other: tensor.to(other))
    replace("torch:Tensor.numpy", numpy)
    replace("torch:Tensor.tolist", lambda original, tensor: original(tensor.cpu()))
    torch.serialization.register_package(
        9.5, lambda storage: getattr(storage, "place", None), restore
    )
