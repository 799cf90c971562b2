"""What a process with fake GPUs knows of them, and its clock."""

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

WAIT = 2.0  # ms that a wait adds: the GPU has nothing to do until the next call


@dataclass
class State:
    """The fake GPUs of this process."""

    count: int = 0
    speed: float = 1.0
    current: int = 0  # the index of the current device
    nccl: bool = False  # was the process group begun with NCCL?
    log: Any = None  # a function that writes an event, as Recorder.log
    now: float = 0.0  # ms; only work and waits move this clock
    streams: list = field(default_factory=list)  # all of them
    current_streams: dict = field(default_factory=dict)  # name of a device -> Stream

    def wait(self, until):
        """Have the process wait for its GPU until a time in ms."""
        if until > self.now:
            self.now = until + WAIT
            self.log("wait")


STATE = State()


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
    """Stand in for torch.cuda.set_device(), which ignores negative numbers."""
    if device is not None and str(device) != "-1":
        STATE.current = int(device_name(device).removeprefix("cuda:"))


@contextmanager
def current_device(device):
    """Stand in for torch.cuda.device(): another current device within a block."""
    before = STATE.current
    set_device(device)
    try:
        yield
    finally:
        STATE.current = before
