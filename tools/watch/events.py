"""What a rank writes down: one event per line, as JSON, each written at once.

So a run that hangs has told what it did.
"""

import contextlib
import hashlib
import json
import sys
import time
from pathlib import Path

import torch

TOOLS = str(Path(__file__).resolve().parents[1])


class Log:
    """Writes events to a file; `paths` are the beginnings of the paths of the script.

    Each event has its kind, the time (seconds, the same clock in all ranks of a
    machine) and the facts that it is given.
    """

    def __init__(self, path, paths):
        self.paths = tuple(paths)
        self.file = open(path, "w", buffering=1)  # noqa: SIM115
        self.clock = time.monotonic  # others may replace the module's

    def write(self, kind, **facts):
        """Write an event."""
        event = {"kind": kind, "time": self.clock(), **facts}
        self.file.write(json.dumps(event) + "\n")

    def frame(self):
        """Return the innermost frame of the script that is being executed, or None."""
        frame = sys._getframe(1)
        while frame and not self.is_script(frame):
            frame = frame.f_back
        return frame

    def is_script(self, frame):
        """Return whether a frame executes a file of the script."""
        name = frame.f_code.co_filename
        if "site-packages" in name or name.startswith(TOOLS):
            return False
        return name.startswith(self.paths)

    def line(self):
        """Return where the script is, such as "train.py:12", or None."""
        frame = self.frame()
        return frame and place(frame)


def place(frame):
    """Return where a frame is, such as "train.py:12"."""
    name = frame.f_code.co_filename.rpartition("/")[2]
    return f"{name}:{frame.f_lineno}"


def read_events(path):
    """Return the events that a rank has written; the last line may be torn."""
    if not path.exists():
        return []
    found = []
    for line in path.read_text().splitlines():
        with contextlib.suppress(ValueError):
            found.append(json.loads(line))
    return found


def local_part(tensor):
    """Return what this rank has of a tensor: all, a shard of a DTensor, or nothing."""
    tensor = tensor.detach()
    if hasattr(tensor, "to_local"):
        tensor = tensor.to_local()
    return torch.empty(0) if tensor.is_meta else tensor


def digest(tensor):
    """Return a short digest of what this rank has of a tensor."""
    flat = local_part(tensor).clone().contiguous().flatten().view(torch.uint8)
    return hashlib.sha256(flat.numpy().tobytes()).hexdigest()[:12]
