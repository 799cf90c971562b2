"""Log a rank's events as JSON lines, each written at once in case the run hangs."""

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

OWN = f"{Path(__file__).resolve().parents[1]}{os.sep}"  # prefix of this package's paths
STANDARD = sysconfig.get_path("stdlib")  # Python's; it may be in a home folder
# What DDP, torch.compile and checkpointing add to the names of wrapped modules.
WRAPPERS = re.compile(r"(?<![^.])(module|_orig_mod|_checkpoint_wrapped_module)\.")


class Log:
    """Writes events to a file; `paths` are prefixes of the paths of the script's files.

    Each event has a kind, a time (in seconds, by one clock for all ranks of a machine)
    and the given facts, which events.csv lists.
    """

    def __init__(self, path, paths):
        self.paths = tuple(paths)
        self.file = open(path, "w", buffering=1)  # noqa: SIM115
        self.clock = time.monotonic  # time.monotonic may be replaced
        self.reducers = set()  # code of functions that call collectives
        self.line_before = None  # the script's latest (file, line)
        self.line_over = lambda: None  # called after each line
        self.now = "", 0  # file and line that are then over
        self.passed = {}  # pairs of such lines, the latest last

    def write(self, kind, **facts):
        event = {"kind": kind, "time": self.clock(), **facts}
        self.file.write(json.dumps(event) + "\n")

    def pass_line(self, *line):
        """Remember a line that the script executes, after the one before."""
        self.line_over()
        self.now = line
        pair = self.line_before or line, line
        self.passed.pop(pair, None)
        self.passed[pair] = None
        self.line_before = line

    def returns(self, frame):
        """End a function's last line; the line that called it goes on."""
        self.line_over()
        caller = next(self.frames(frame.f_back), frame)
        self.now = caller.f_code.co_filename, caller.f_lineno

    def write_way(self):
        """Write which lines the script executed since this was last called."""
        pairs = [[at(*one) for one in pair] for pair in self.passed]
        self.passed.clear()
        self.write("way", pairs=pairs)

    def found(self, rule, *details, line=None, **facts):
        """Write an event that is a finding of a rule by itself."""
        told = {"rule": rule, "details": details, "facts": facts}
        self.write("found", line=line or self.line(), **told)

    def frames(self, frame=None):
        """Yield the script's frames, innermost first, from a frame or from here."""
        frame = frame or sys._getframe(1)
        while frame:
            if self.is_script(frame):
                yield frame
            frame = frame.f_back

    def frame(self):
        """Return the script's innermost frame, or None."""
        return next(self.frames(), None)

    def giver(self, thing):
        """Return where the script calls a thing, outside functions it is passed to."""
        for frame in self.frames():
            code = frame.f_code
            given = code.co_varnames[: code.co_argcount]
            if not any(frame.f_locals.get(name) is thing for name in given):
                return place(frame)
        return None

    def caller(self):
        """Return the line of the script that called its current function."""
        frame = next(islice(self.frames(), 1, None), None)
        return frame and place(frame)

    def called(self):
        """Return the name of the function that the script called, or None."""
        frame = sys._getframe(1)
        name = None
        while frame and not self.is_script(frame):
            name = frame.f_code.co_name
            frame = frame.f_back
        return name

    def is_script(self, frame):
        """Return whether a frame executes one of the script's files."""
        return self.is_own(frame.f_code.co_filename)

    def is_own(self, name):
        """Return whether a path is one of the script's files."""
        if "site-packages" in name or name.startswith((OWN, STANDARD)):
            return False
        return name.startswith(self.paths)

    def line(self):
        """Return the script's current line, such as "train.py:12", or None."""
        frame = self.frame()
        return frame and place(frame)


def place(frame):
    """Return a frame's file and line, such as "train.py:12"."""
    return at(frame.f_code.co_filename, frame.f_lineno)


def at(path, line):
    """Return a file and line; __init__.py is shown with its folder."""
    *_, folder, name = path.split("/")
    return f"{folder}/{name}:{line}" if name == "__init__.py" else f"{name}:{line}"


def local_part(tensor):
    """Return this rank's part of a tensor: all, a shard of a DTensor, or nothing."""
    tensor = tensor.detach()
    if hasattr(tensor, "to_local"):
        tensor = tensor.to_local()
    if tensor.is_sparse:
        tensor = tensor.to_dense()
    return torch.empty(0) if tensor.is_meta else tensor


def digest(tensor):
    """Return a digest of this rank's part of a tensor, bypassing function modes."""
    with torch._C.DisableTorchFunction():
        flat = torch._C.TensorBase.cpu(local_part(tensor).contiguous().flatten())
        data = ctypes.string_at(flat.data_ptr(), flat.nbytes)
        return hashlib.sha256(data).hexdigest()[:12]


def tensors_in(value):
    """Return the tensors in lists, tuples and dicts, at any depth."""
    return [one for one in tree_leaves(value) if isinstance(one, torch.Tensor)]


def bare(name):
    """Return a parameter's name without wrapper prefixes."""
    return WRAPPERS.sub("", name)
