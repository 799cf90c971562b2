"""What a rank writes down: one event per line, as JSON, each written at once.

So a run that hangs has told what it did.
"""

import ctypes
import hashlib
import json
import os
import re
import sys
import sysconfig
import time
from itertools import islice
from pathlib import Path

import torch
from torch.utils._pytree import tree_leaves

OWN = f"{Path(__file__).resolve().parent}{os.sep}"  # begins the paths of this package
STANDARD = sysconfig.get_path("stdlib")  # of Python: it may be below a home folder
# What DDP, torch.compile and checkpointing add to names, wherever they wrap a module.
WRAPPERS = re.compile(r"(?<![^.])(module|_orig_mod|_checkpoint_wrapped_module)\.")


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

    def found(self, row, *details, line=None, **facts):
        """Write what is a finding by itself, as `findings.finding` is to get it."""
        told = {"row": row, "details": details, "facts": facts}
        self.write("found", line=line or self.line(), **told)

    def frames(self, frame=None):
        """Yield the frames of the script, the innermost first, from a frame or now."""
        frame = frame or sys._getframe(1)
        while frame:
            if self.is_script(frame):
                yield frame
            frame = frame.f_back

    def frame(self):
        """Return the innermost frame of the script, or None."""
        return next(self.frames(), None)

    def giver(self, thing):
        """Return where the script calls a thing, or who gives that line the thing."""
        for frame in self.frames():
            code = frame.f_code
            given = code.co_varnames[: code.co_argcount]
            if not any(frame.f_locals.get(name) is thing for name in given):
                return place(frame)
        return None

    def caller(self):
        """Return which line of the script has called the function that it is in."""
        frame = next(islice(self.frames(), 1, None), None)
        return frame and place(frame)

    def called(self):
        """Return the name of the function that the script has called, or None."""
        frame = sys._getframe(1)
        name = None
        while frame and not self.is_script(frame):
            name = frame.f_code.co_name
            frame = frame.f_back
        return name

    def is_script(self, frame):
        """Return whether a frame executes a file of the script."""
        name = frame.f_code.co_filename
        if "site-packages" in name or name.startswith((OWN, STANDARD)):
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


def local_part(tensor):
    """Return what this rank has of a tensor: all, a shard of a DTensor, or nothing."""
    tensor = tensor.detach()
    if hasattr(tensor, "to_local"):
        tensor = tensor.to_local()
    if tensor.is_sparse:
        tensor = tensor.to_dense()
    return torch.empty(0) if tensor.is_meta else tensor


def digest(tensor):
    """Return a short digest of what this rank has of a tensor: equal for equal ones.

    No mode of functions sees it, so that neither fake GPUs nor another type do.
    """
    with torch._C.DisableTorchFunction():
        flat = torch._C.TensorBase.cpu(local_part(tensor).contiguous().flatten())
        data = ctypes.string_at(flat.data_ptr(), flat.nbytes)
        return hashlib.sha256(data).hexdigest()[:12]


def is_zero(tensor):
    """Return whether all that this rank has of a tensor is 0."""
    with torch._C.DisableTorchFunction():
        return not local_part(tensor).any()


def is_finite(tensor):
    """Return whether all that this rank has of a tensor is a number: no nan, no inf."""
    with torch._C.DisableTorchFunction():
        return bool(local_part(tensor).isfinite().all())


def has_gaps(tensor):
    """Return whether a tensor is not contiguous; a sparse one has no such thing."""
    return not tensor.is_sparse and not tensor.is_contiguous()


def tensors_in(value):
    """Return the tensors in lists, tuples and dicts, however deep."""
    return [one for one in tree_leaves(value) if isinstance(one, torch.Tensor)]


def bare(name):
    """Return the name of a parameter without those of wrappers around its network."""
    return WRAPPERS.sub("", name)
