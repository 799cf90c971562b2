"""Which fake GPUs there are, what time it is for them, and torch.cuda's names for them.

What a script measures does not depend on the machine. A call takes CALL ms of the CPU,
a product of matrices MATMUL ms of the GPU. A wait takes WAIT ms on top of the time that
the GPU needs.
"""

from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import torch

from onecurve.api import CLOCKS, Done, replace

CALL = 0.05  # ms that a call takes, whatever it asks for
MATMUL = 2.4  # ms of the device; a step of the scripts has five
WAIT = 2.0  # ms that a wait adds: the GPU has nothing to do until the next call
MEMORY = 80 * 2**30  # bytes of a GPU


@dataclass
class State:
    """The fake GPUs of this process."""

    count: int = 0
    current: int = 0  # the index of the current device
    nccl: str = ""  # the GPU that the process group is bound to, with NCCL
    log: Any = None  # a function that writes an event, as Recorder.log
    now: float = 0.0  # ms; only work and waits move this clock
    free: float = 0.0  # ms; when the GPUs will have done their work
    matmul: float = MATMUL  # ms that a product of matrices takes

    def begin(self, count, log, matmul):
        """Have so many GPUs from now on."""
        self.count = count
        self.log = log
        self.matmul = matmul

    def choose(self, device):
        """Make a device the current one; return the index of the one before."""
        before = self.current
        self.current = int(device_name(device).removeprefix("cuda:"))
        return before

    def bind(self, device):
        """Bind the process group to a GPU; return its name."""
        self.nccl = device_name(device)
        return self.nccl

    def wait(self, until):
        """Have the process wait for its GPUs until a time in ms."""
        if until > self.now:
            self.now = until + WAIT
            self.log("wait")

    def start_matmul(self):
        """Give the GPUs a product of matrices to do after what they have."""
        self.now += CALL
        self.free = max(self.now, self.free) + self.matmul


STATE = State()


class Event(Done):
    """torch.cuda.Event, and torch.Event: when the work before it is done."""

    done = 0.0  # ms

    def __init__(self, *given, enable_timing=False, **_):
        self.timing = enable_timing or True in given  # else given is a device

    def record(self, stream=None):
        self.done = max(STATE.now, STATE.free)

    def synchronize(self):
        STATE.wait(self.done)

    def query(self):
        """Return True, when the work is done: who asks once asks until then."""
        STATE.wait(self.done)
        return True

    def elapsed_time(self, end):
        """Return ms. Raises what CUDA does for events that are not over."""
        if not (self.timing and end.timing):
            why = "Both events must be created with argument 'enable_timing=True'."
            raise ValueError(why)
        if max(self.done, end.done) > STATE.now:
            why = "Both events must be completed before calculating elapsed time."
            raise ValueError(why)
        return end.done - self.done


class Stream(Done):
    """torch.cuda.Stream. A GPU does one thing after the other, whatever the stream.

    So a script computes right, here alone, that has a stream not wait for another.
    """

    def __init__(self, device=None, **_):
        device_name(device)  # raises where there is no such one
        self.has_work = False

    def __enter__(self):
        return with_work(self)

    def synchronize(self):
        if self.has_work:
            STATE.wait(STATE.free)

    def wait_for_work(self, *_):
        """Do nothing until others are done: it is done no earlier than they."""
        self.has_work = True

    wait_event = wait_stream = wait_for_work

    def is_capturing(self):
        return False

    def record_event(self, event=None):
        event = event or Event()
        event.record()
        return event


class Datetime(datetime):
    """datetime.datetime, by the clock of the GPUs."""

    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(STATE.now / 1000, tz)

    today = utcnow = now


class Generator(torch.Generator):
    """torch.Generator, which may be that of a GPU; the CPU draws, so by other numbers.

    A generator of the CPU is refused where a GPU's tensor is made, and the other way.
    """

    def __new__(cls, device="cpu"):
        return super().__new__(cls)

    def __init__(self, device="cpu"):
        self.place = torch.device(device)  # CUDA looks for it when it is used
        if self.place.type == "cuda" and self.place.index is None:
            self.place = torch.device(device_name())

    @property
    def device(self):
        return self.place


def device_name(device=None):
    """Return a device as "cuda:0" or "cpu", given a text, number or torch.device.

    None is the current GPU. Raises RuntimeError as CUDA does for one that is not there.
    """
    is_number = isinstance(device, int)
    name = f"cuda:{device}" if is_number else str(torch.device(device or "cuda"))
    if name == "cuda":
        name = f"cuda:{STATE.current}"
    if name.startswith("cuda:") and int(name[5:]) >= STATE.count:
        raise RuntimeError("CUDA error: invalid device ordinal")
    return name


def with_work(stream=None):
    """Return a stream, else a new one, that is or was the current one."""
    stream = stream or Stream()
    stream.has_work = True
    return stream


@contextmanager
def current_device(device):
    """Make a device the current one within a block, as torch.cuda.device() does."""
    before = STATE.choose(device)
    try:
        yield
    finally:
        STATE.choose(before)


def synchronize(device=None):
    """Wait until the GPUs have done their work."""
    STATE.wait(STATE.free)


def refuse(*_, **__):
    """Raise NotImplementedError, for what the fake GPUs do not have."""
    raise NotImplementedError(
        "The lab's fake GPU does not have this. That is the lab's limit, not a mistake "
        "of yours."
    )


NAMES = {  # in torch.cuda, torch.accelerator or both: what is there instead
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
    "mem_get_info": lambda device=None: (MEMORY, MEMORY),  # free, and in all
    "memory_summary": lambda device=None, abbreviated=False: "the fake GPU is empty",
    "initial_seed": torch.initial_seed,
    "get_rng_state": lambda device=None: torch.get_rng_state(),
    "init": lambda: None,
    "current_accelerator": lambda check_available=False: torch.device("cuda"),
}
REFUSED = ["torch.cuda:_lazy_init", "torch.cuda:CUDAGraph"]
REFUSED += ["torch:set_default_device"]


def install():
    """Put all names in place; have Python's clocks read that of the GPUs."""
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
