"""Which fake GPUs there are, what time it is for them, and torch.cuda's names for them.

What a script measures does not depend on the machine. A call takes CALL ms of the CPU,
a product of matrices MATMUL ms of the GPU divided by its speed. A wait takes WAIT ms on
top of the time until the GPU has done its work.
"""

from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch

from tools.watch.replace import CLOCKS, replace

CALL = 0.05  # ms that a call takes, whatever it asks for
MATMUL = 2.4  # ms of the device; a step of the scripts has five
WAIT = 2.0  # ms that a wait adds: the GPU has nothing to do until the next call


@dataclass
class State:
    """The fake GPUs of this process."""

    count: int = 0
    speed: float = 1.0
    current: int = 0  # the index of the current device
    nccl: str = ""  # the GPU that the process group is bound to, with NCCL
    log: Any = None  # a function that writes an event, as Recorder.log
    now: float = 0.0  # ms; only work and waits move this clock
    free: float = 0.0  # ms; when the GPUs will have done their work

    def wait(self, until):
        """Have the process wait for its GPUs until a time in ms."""
        if until > self.now:
            self.now = until + WAIT
            self.log("wait")

    def start_matmul(self):
        """Give the GPUs a product of matrices to do after what they have."""
        self.now += CALL
        self.free = max(self.now, self.free) + MATMUL / self.speed


STATE = State()


class Event:
    """torch.cuda.Event: when the work before it is done, by the clock."""

    def __init__(self, enable_timing=False, **_):
        self.timing = enable_timing
        self.at = 0.0  # ms

    def record(self, stream=None):
        self.at = max(STATE.now, STATE.free)

    def query(self):
        return self.at <= STATE.now

    def synchronize(self):
        STATE.wait(self.at)

    def elapsed_time(self, end):
        """Return ms. Raises what CUDA does for events that are not over."""
        if not (self.timing and end.timing):
            why = "Both events must be created with argument 'enable_timing=True'."
            raise ValueError(why)
        if max(self.at, end.at) > STATE.now:
            raise RuntimeError("CUDA error: device not ready")
        return end.at - self.at


def device_name(device=None):
    """Return a device as "cuda:0" or "cpu", given a text, number or torch.device.

    None is the current GPU. Raises RuntimeError as CUDA does for one that is not there.
    """
    name = f"cuda:{device}" if isinstance(device, int) else str(device or "cuda")
    if name == "cuda":
        name = f"cuda:{STATE.current}"
    if name.startswith("cuda:") and int(name[5:]) >= STATE.count:
        raise RuntimeError("CUDA error: invalid device ordinal")
    return name


def set_device(device):
    """Make a device the current one, as torch.cuda.set_device() does."""
    STATE.current = int(device_name(device).removeprefix("cuda:"))


@contextmanager
def current_device(device):
    """Make a device the current one within a block, as torch.cuda.device() does."""
    before = STATE.current
    set_device(device)
    try:
        yield
    finally:
        STATE.current = before


def synchronize(device=None):
    """Wait until the GPUs have done their work."""
    STATE.wait(STATE.free)


def stream(device=None):
    """Return the stream that all of a script's work is in."""
    return SimpleNamespace(synchronize=synchronize)


def refuse(*_, **__):
    """Raise NotImplementedError, for what the fake GPUs do not have."""
    raise NotImplementedError(
        "The lab's fake GPU does not have this. That is the lab's limit, not a mistake "
        "of yours."
    )


NAMES = {  # in torch.cuda, torch.accelerator or both -> what is there instead
    "is_available": lambda: True,
    "device_count": lambda: STATE.count,
    "synchronize": synchronize,
    "current_stream": stream,
    "default_stream": stream,
    "Event": Event,
    "device": current_device,
    "current_device": lambda: STATE.current,
    "set_device": set_device,
    "get_device_name": lambda device=None: f"a fake {device_name(device)}",
    "get_device_capability": lambda device=None: (8, 0),
    "current_accelerator": lambda check_available=False: torch.device("cuda"),
    "set_device_index": set_device,
}
REFUSED = ["torch.cuda:_lazy_init", "torch.cuda:Stream", "torch.cuda:CUDAGraph"]
REFUSED += ["torch:set_default_device"]


def install():
    """Put all names in place; have Python's clocks read that of the GPUs."""
    for name, answer in NAMES.items():
        setattr(torch.cuda, name, answer)
        setattr(torch.accelerator, name, answer)
    for name in REFUSED:
        replace(name, refuse)
    for name in CLOCKS:
        if name.endswith("_ns"):
            replace(f"time:{name}", lambda _: int(STATE.now * 1e6))
        else:
            replace(f"time:{name}", lambda _: STATE.now / 1000)
    replace("timeit:default_timer", lambda _: STATE.now / 1000)
