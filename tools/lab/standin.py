"""Stand-ins for GPUs, for exercises whose mistake shows only there.

They behave as GPUs in the respects that exercises are about, on any machine: which
device a tensor is on, that work is queued (`one_gpu`, `two_gpus`), or what
`nn.DataParallel` does to a batch (`data_parallel`). Each takes the function that writes
an event of tools.lab.observe.
"""

from functools import partial

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from tools.lab.patches import replace

CALL = 0.05  # ms that a call takes, whatever it asks for
LINEAR, BACKWARD = 3.0, 6.0  # ms of the device
FREE = "__get__", "copy_", "_has_compatible_shallow_copy_type"  # may mix devices


class Clock:
    """A clock that only the work moves: a call costs little, waiting costs the rest.

    `now` and `free`, when the queue will be empty, are in ms.
    """

    def __init__(self):
        self.now = self.free = 0.0

    def queue(self, milliseconds):
        self.now += CALL
        self.free = max(self.now, self.free) + milliseconds

    def wait(self):
        self.now = max(self.now, self.free)


CLOCK = Clock()  # of this process; with two GPUs, both work through one queue


class Event:
    """torch.cuda.Event by that clock."""

    def __init__(self, enable_timing=False, **_):
        self.at = None

    def record(self, *_):
        self.at = max(CLOCK.now, CLOCK.free)

    def synchronize(self):
        CLOCK.now = max(CLOCK.now, self.at)

    def elapsed_time(self, other):
        return other.at - self.at


def place(tensor):
    """Return the device that a tensor plays to be on."""
    return getattr(tensor, "_place", "cpu")


def target(args, kwargs):
    """Return the device that the arguments of .to() or .cuda() name, or None."""
    for value in [*args, kwargs.get("device")]:
        if isinstance(value, torch.Tensor):
            return place(value)
        if isinstance(value, int) and not isinstance(value, bool):
            return f"cuda:{value}"
        if isinstance(value, str | torch.device):
            return "cuda:0" if str(value) == "cuda" else str(value)
    return None


class Devices(TorchFunctionMode):
    """Tensors that play to be on GPUs; mixing two devices fails as it does there."""

    def __init__(self, note):
        super().__init__()
        self.note = note

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs, name = dict(kwargs or {}), getattr(func, "__name__", "")
        if func in (torch.Tensor.to, torch.Tensor.cuda, torch.Tensor.cpu):
            return self.move(func, name, args, kwargs)
        if func == torch.Tensor.device.__get__:
            return torch.device(place(args[0]))
        if name.startswith("_foreach"):  # of an optimizer, which sorts them by device
            return func(*args, **kwargs)
        if name == "__set__" and isinstance(args[1], torch.Tensor):
            args[0]._place = place(args[1])  # module.to() sets .data
            return func(*args, **kwargs)
        where = target([], {"device": kwargs.pop("device", None)})
        tensors = list(filter(torch.is_tensor, tree_leaves((args, kwargs))))
        places = sorted({place(t) for t in tensors if t.dim()}, reverse=True)
        if len(places) > 1 and name not in FREE:
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two "
                f"devices, {places[0]} and {places[1]}!"
            )
        if name in ("item", "tolist") and place(args[0]) != "cpu":
            CLOCK.wait()
        result = func(*args, **kwargs)
        where = where or next(iter(places), place(tensors[0]) if tensors else "cpu")
        for made in filter(torch.is_tensor, tree_leaves(result)):
            if where != "cpu":
                made._place = where
        if func is nn.functional.linear:
            told = {"device": where, "images": len(result)}
            self.note("forward", **told)
            if result.requires_grad:
                result.register_hook(lambda _: self.note("backward", **told))
            CLOCK.queue(LINEAR)
        if name == "backward":
            CLOCK.queue(BACKWARD)
        return result

    def move(self, func, name, args, kwargs):
        """Do a `.to()`, `.cuda()` or `.cpu()`, to another place without CUDA."""
        tensor, *rest = args
        where = target(rest, kwargs) or {"cuda": "cuda:0", "cpu": "cpu"}.get(name)
        if where is None:  # only another dtype
            result = func(*args, **kwargs)
        else:
            dtypes = [
                v for v in [*rest, kwargs.get("dtype")] if isinstance(v, torch.dtype)
            ]
            result = tensor.to(*dtypes) if dtypes else tensor
            if where != place(tensor):
                if where == "cpu":
                    CLOCK.wait()
                result = result.clone()
        result._place = where or place(tensor)
        return result


def gpus(count, note):
    """Have torch believe in GPUs that work through a queue, in a time of their own.

    What a script measures does not depend on the machine: a call takes CALL ms, a layer
    LINEAR, the backward pass BACKWARD.
    """
    replace("torch.cuda:is_available", lambda _: True)
    replace("torch.cuda:device_count", lambda _: count)
    replace("torch.cuda:current_device", lambda _: 0)
    replace("torch.cuda:set_device", lambda _, device: None)
    replace("torch.cuda:synchronize", lambda _, device=None: CLOCK.wait())
    replace("torch.cuda:Event", Event)
    for name in "perf_counter", "monotonic", "time":
        replace(f"time:{name}", lambda _: CLOCK.now / 1000)
    Devices(note).__enter__()


one_gpu, two_gpus = partial(gpus, 1), partial(gpus, 2)


class DataParallel(nn.Module):
    """nn.DataParallel with two copies on the CPU: scatter, apply, gather."""

    def __init__(self, module, *_, **__):
        super().__init__()
        self.module = module

    def forward(self, *inputs):
        parts = zip(*[value.chunk(2) for value in inputs], strict=True)
        return gather([self.module(*part) for part in parts])


def gather(outputs):
    """Join outputs along dimension 0, whatever they are, as nn.DataParallel does."""
    first = outputs[0]
    if torch.is_tensor(first):
        return torch.cat(outputs) if first.dim() else torch.stack(outputs)
    if isinstance(first, dict):
        return {key: gather([output[key] for output in outputs]) for key in first}
    return type(first)(map(gather, zip(*outputs, strict=True)))


def data_parallel(note):
    """Put the stand-in with two copies in the place of nn.DataParallel."""
    for module in "torch.nn", "torch.nn.parallel":
        replace(f"{module}:DataParallel", DataParallel)
