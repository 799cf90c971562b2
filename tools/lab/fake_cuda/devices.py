"""The fake GPUs, their clock and the names of torch.cuda.

Times don't depend on the machine. A call takes CALL ms on the CPU. On the GPU, a matrix
product takes MATMUL ms and an optimizer's update of a tensor UPDATE ms. A wait takes
WAIT ms longer than the GPU needs.
"""

from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import torch

from onecurve.api import CLOCKS, Done, replace

CALL = 0.05  # ms per call, of any kind
MATMUL = 2.4  # ms on the GPU; a step of the scripts has five
UPDATE = 0.1  # ms on the GPU to update one of the network's four tensors
WAIT = 2.0  # ms that a wait adds, since the GPU idles until the next call
MEMORY = 80 * 2**30  # bytes per GPU


@dataclass
class State:
    """The fake GPUs of this process."""

    count: int = 0
    current: int = 0  # the index of the current device
    nccl: str = ""  # the GPU that an NCCL process group is bound to
    log: Any = None  # a function that writes an event, like Recorder.log
    now: float = 0.0  # ms; only work and waits advance this clock
    free: float = 0.0  # ms; when the GPUs finish their queue
    matmul: float = MATMUL  # ms per matrix product

    def begin(self, count, log, matmul):
        self.count = count
        self.log = log
        self.matmul = matmul

    def choose(self, device):
        """Change the current device; return the previous one's index."""
        before = self.current
        self.current = int(device_name(device).removeprefix("cuda:"))
        return before

    def bind(self, device):
        """Bind the process group to a GPU; return its name."""
        self.nccl = device_name(device)
        return self.nccl

    def wait(self, until):
        """Make the process wait for its GPUs until a time in ms."""
        if until > self.now:
            self.now = until + WAIT
            self.log("wait")

    def start(self, milliseconds):
        """Queue work on the GPUs."""
        self.now += CALL
        self.free = max(self.now, self.free) + milliseconds


STATE = State()


class Event(Done):
    """torch.cuda.Event and torch.Event: done when all earlier work is."""

    done = 0.0  # ms

    def __init__(self, *given, enable_timing=False, **_):
        self.timing = enable_timing or True in given  # else given is a device

    def record(self, stream=None):
        self.done = max(STATE.now, STATE.free)

    def synchronize(self):
        STATE.wait(self.done)

    def query(self):
        """Wait and return True, as callers would poll until then anyway."""
        STATE.wait(self.done)
        return True

    def elapsed_time(self, end):
        """Return ms. Raises CUDA's error if an event isn't completed."""
        if not (self.timing and end.timing):
            why = "Both events must be created with argument 'enable_timing=True'."
            raise ValueError(why)
        if max(self.done, end.done) > STATE.now:
            why = "Both events must be completed before calculating elapsed time."
            raise ValueError(why)
        return end.done - self.done


class Stream(Done):
    """torch.cuda.Stream. A fake GPU runs the work of all streams in order.

    So a script that forgets to wait for another stream computes correctly only here.
    """

    def __init__(self, device=None, **_):
        device_name(device)  # raises if there is no such device
        self.has_work = False

    def __enter__(self):
        return with_work(self)

    def synchronize(self):
        if self.has_work:
            STATE.wait(STATE.free)

    def wait_for_work(self, *_):
        """Finish no earlier than the other stream or event."""
        self.has_work = True

    wait_event = wait_stream = wait_for_work

    def is_capturing(self):  # Adam asks
        return False

    def record_event(self, event=None):
        event = event or Event()
        event.record()
        return event


class Datetime(datetime):
    """datetime.datetime with the GPUs' clock."""

    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(STATE.now / 1000, tz)

    today = utcnow = now


class Generator(torch.Generator):
    """torch.Generator, also for a GPU, but the CPU draws, so its numbers differ."""

    def __new__(cls, device="cpu"):
        return super().__new__(cls)

    def __init__(self, device="cpu"):
        self.place = torch.device(device)  # CUDA checks it only when used
        if self.place.type == "cuda" and self.place.index is None:
            self.place = torch.device(device_name())

    @property
    def device(self):
        return self.place


def device_name(device=None):
    """Return "cuda:0" or "cpu" for a text, number, torch.device or None: current GPU.

    Raises RuntimeError like CUDA if there is no such GPU.
    """
    is_number = isinstance(device, int)
    name = f"cuda:{device}" if is_number else str(torch.device(device or "cuda"))
    if name == "cuda":
        name = f"cuda:{STATE.current}"
    if name.startswith("cuda:") and int(name[5:]) >= STATE.count:
        raise RuntimeError("CUDA error: invalid device ordinal")
    return name


def with_work(stream=None):
    """Return a stream, by default a new one, after marking that it has work."""
    stream = stream or Stream()
    stream.has_work = True
    return stream


@contextmanager
def current_device(device):
    """Change the current device within a block, like torch.cuda.device()."""
    before = STATE.choose(device)
    try:
        yield
    finally:
        STATE.choose(before)


def synchronize(device=None):
    STATE.wait(STATE.free)


def refuse(*_, **__):
    """Raise NotImplementedError for features that the fake GPUs lack."""
    raise NotImplementedError(
        "The lab's fake GPU does not support this. This is a limit of the lab, not "
        "your mistake."
    )


NAMES = {  # replacements in torch.cuda, torch.accelerator or both
    "is_available": lambda: True,
    "device_count": lambda: STATE.count,
    "synchronize": synchronize,
    "current_stream": lambda device=None: with_work(),
    "default_stream": lambda device=None: with_work(),
    "set_stream": with_work,
    "stream": with_work,
    "Stream": Stream,
    "Event": Event,
    "device": current_device,
    "device_index": current_device,
    "current_device": lambda: STATE.current,
    "current_device_index": lambda: STATE.current,
    "set_device": STATE.choose,
    "set_device_index": STATE.choose,
    "get_device_name": lambda device=None: f"a fake {device_name(device)}",
    "get_device_capability": lambda device=None: (8, 0),
    "mem_get_info": lambda device=None: (MEMORY, MEMORY),  # free and total
    "memory_summary": lambda device=None, abbreviated=False: "the fake GPU is empty",
    "initial_seed": torch.initial_seed,
    "get_rng_state": lambda device=None: torch.get_rng_state(),
    "init": lambda: None,
    "current_accelerator": lambda check_available=False: torch.device("cuda"),
}
REFUSED = ["torch.cuda:_lazy_init", "torch.cuda:CUDAGraph"]
REFUSED += ["torch:set_default_device"]


def install():
    """Replace all names, and make Python's clocks show the GPUs' time."""
    for name, answer in NAMES.items():
        for module in torch.cuda, torch.accelerator:
            if hasattr(module, name):
                setattr(module, name, answer)
    replace("torch:Stream", Stream)
    replace("torch:Event", Event)
    replace("torch:Generator", Generator)
    replace("torch:Tensor.record_stream", lambda *_: None)
    for name in REFUSED:
        replace(name, refuse)
    for name in CLOCKS:
        if name.endswith("_ns"):
            replace(f"time:{name}", lambda _: int(STATE.now * 1e6))
        else:
            replace(f"time:{name}", lambda _: STATE.now / 1000)
    replace("timeit:default_timer", lambda _: STATE.now / 1000)
    replace("datetime:datetime", Datetime)
