"""The time of fake GPUs: streams, events, and Python's clocks.

What a script measures does not depend on the machine. A call takes CALL ms of the CPU,
a product of matrices MATMUL ms of the GPU divided by its speed. A wait takes WAIT ms on
top of the time until the stream has done its work.
"""

import datetime
from contextlib import contextmanager

import torch

from tools.lab.fake_cuda.state import STATE, current_device, device_name
from tools.lab.patches import CLOCKS, replace

CALL = 0.05  # ms that a call takes, whatever it asks for
MATMUL = 2.4  # ms of the device; a step of the scripts has five


class Stream:
    """torch.cuda.Stream: a queue of work; `free` is when it will be empty, in ms."""

    def __init__(self, device=None, **_):
        self.device = torch.device(device_name(device))
        self.free = 0.0
        STATE.streams.append(self)

    def synchronize(self):
        STATE.wait(self.free)

    def wait_stream(self, stream):
        self.free = max(self.free, stream.free)


class Event:
    """torch.cuda.Event: when the work before it is done, by the clock."""

    def __init__(self, enable_timing=False, **_):
        self.timing = enable_timing
        self.at = None  # ms; None until it is recorded

    def record(self, stream=None):
        stream = stream or current_stream()
        self.at = max(STATE.now, stream.free)

    def wait(self, stream=None):
        stream = stream or current_stream()
        stream.free = max(stream.free, self.at or 0)

    def synchronize(self):
        STATE.wait(self.at or 0)

    def elapsed_time(self, end):
        """Return ms. Raises what CUDA does for events that are not over."""
        if not (self.timing and end.timing):
            why = "Both events must be created with argument 'enable_timing=True'."
            raise ValueError(why)
        if max(self.at, end.at) > STATE.now:
            raise RuntimeError("CUDA error: device not ready")
        return end.at - self.at


class Datetime(datetime.datetime):
    """datetime.datetime, whose now() reads the clock."""

    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(STATE.now / 1000, tz)


def current_stream(device=None):
    """Stand in for torch.cuda.current_stream()."""
    return STATE.current_streams[device_name(device)]


@contextmanager
def stream_context(stream):
    """Stand in for torch.cuda.stream(): another current stream within a block."""
    if stream is None:
        yield
        return
    place = str(stream.device)
    before = STATE.current_streams[place]
    STATE.current_streams[place] = stream
    try:
        with current_device(place):
            yield
    finally:
        STATE.current_streams[place] = before


def synchronize(device=None):
    """Stand in for torch.cuda.synchronize(): wait for all streams of a device."""
    device = torch.device(device_name(device))
    STATE.wait(max(stream.free for stream in STATE.streams if stream.device == device))


def start_matmul(device):
    """Put a product of matrices into a device's current stream."""
    STATE.now += CALL
    stream = current_stream(device)
    stream.free = max(STATE.now, stream.free) + MATMUL / STATE.speed


def install():
    """Give each GPU its default stream; have Python's clocks read this one."""
    for index in range(STATE.count):
        STATE.current_streams[f"cuda:{index}"] = Stream(index)
    for name in CLOCKS:
        if name.endswith("_ns"):
            replace(f"time:{name}", lambda _: int(STATE.now * 1e6))
        else:
            replace(f"time:{name}", lambda _: STATE.now / 1000)
    replace("timeit:default_timer", lambda _: STATE.now / 1000)
    replace("datetime:datetime", Datetime)
    replace("torch:Stream", Stream)
    replace("torch:Event", lambda _, device=None, **options: Event(**options))
