"""Stand-ins for GPUs, for exercises whose mistake shows only there.

They behave as GPUs in the one respect that an exercise is about, on any machine: which
device a tensor is on (`devices`), that work is queued (`clock`), or what
`nn.DataParallel` does to a batch (`data_parallel`). Each takes the function that writes an
event of tools.lab.observe.
"""

import time

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten

CALL = 0.05  # ms that a call takes, whatever it asks for
LINEAR, BACKWARD = 3.0, 6.0  # ms of the device
FREE = "__get__", "copy_", "_has_compatible_shallow_copy_type"  # may mix devices


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


def place(tensor):
    """Return the device that a tensor plays to be on."""
    return getattr(tensor, "_place", "cpu")


class Devices(TorchFunctionMode):
    """Tensors that play to be on GPUs; what mixes two devices fails as it does there."""

    def __init__(self, note, clock=None):
        super().__init__()
        self.note, self.clock = note, clock

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
        where = target([], kwargs) if "device" in kwargs else None
        kwargs.pop("device", None)
        tensors = [t for t in tree_flatten((args, kwargs))[0] if torch.is_tensor(t)]
        places = sorted({place(t) for t in tensors if t.dim()}, reverse=True)
        if len(places) > 1 and name not in FREE:
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two "
                f"devices, {places[0]} and {places[1]}!"
            )
        if self.clock and name in ("item", "tolist") and place(args[0]) != "cpu":
            self.clock.wait()
        result = func(*args, **kwargs)
        where = where or next(iter(places), place(tensors[0]) if tensors else "cpu")
        for made in tree_flatten(result)[0]:
            if torch.is_tensor(made) and where != "cpu":
                made._place = where
        if func is nn.functional.linear:
            self.linear(result, where)
        if self.clock and name == "backward":
            self.clock.queue(BACKWARD)
        return result

    def move(self, func, name, args, kwargs):
        tensor, *rest = args
        where = {"cuda": "cuda:0", "cpu": "cpu"}.get(name)
        where = target(rest, kwargs) or where
        if where is None:  # only another dtype
            result = func(*args, **kwargs)
            result._place = place(tensor)
            return result
        kinds = [v for v in [*rest, kwargs.get("dtype")] if isinstance(v, torch.dtype)]
        result = tensor.to(kinds[0]) if kinds else tensor
        if where != place(tensor):
            if self.clock and where == "cpu":
                self.clock.wait()
            result = result.clone()
        result._place = where
        return result

    def linear(self, result, where):
        size = len(result)
        self.note("forward", device=where, images=size)
        if result.requires_grad:
            result.register_hook(
                lambda _: self.note("backward", device=where, images=size)
            )
        if self.clock:
            self.clock.queue(LINEAR)


class Clock:
    """A clock that only the work moves: a call costs little, waiting costs the rest."""

    def __init__(self):
        self.now = self.free = 0.0

    def queue(self, milliseconds):
        self.now += CALL
        self.free = max(self.now, self.free) + milliseconds

    def wait(self, *_, **__):
        self.now = max(self.now, self.free)

    def seconds(self):
        return self.now / 1000


def devices(note, count=1, clock=None):
    """Have torch believe in `count` GPUs."""
    torch.cuda.is_available = lambda: True
    torch.cuda.device_count = lambda: count
    torch.cuda.current_device = lambda: 0
    torch.cuda.set_device = lambda device: None
    torch.cuda.synchronize = clock.wait if clock else lambda device=None: None
    Devices(note, clock).__enter__()


def one_gpu(note):
    """Have torch believe in one GPU."""
    devices(note, 1)


def two_gpus(note):
    """Have torch believe in two GPUs."""
    devices(note, 2)


def clock(note):
    """Have torch believe in one GPU that works through a queue, in a time of its own.

    time.perf_counter tells that time, so what a script measures does not depend on the
    machine. A call takes CALL ms, a layer LINEAR, the backward pass BACKWARD.
    """
    shared = Clock()

    class Event:
        def __init__(self, enable_timing=False, **_):
            self.at = None

        def record(self, *_):
            self.at = max(shared.now, shared.free)

        def synchronize(self):
            shared.now = max(shared.now, self.at)

        def elapsed_time(self, other):
            return other.at - self.at

    devices(note, 1, shared)
    torch.cuda.Event = Event
    time.perf_counter = time.monotonic = time.time = shared.seconds


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
    nn.DataParallel = nn.parallel.DataParallel = DataParallel
