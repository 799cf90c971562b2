"""Record a rank's collective calls."""

import threading
from collections import Counter
from inspect import signature
from traceback import walk_stack

import torch
from torch.autograd.function import FunctionCtx

from onecurve.set_up.replace import replace

NAMES = ["barrier", "monitored_barrier", "all_reduce", "broadcast", "reduce"]
NAMES += ["all_gather", "all_gather_object", "broadcast_object_list"]
NAMES += ["all_gather_into_tensor", "reduce_scatter", "reduce_scatter_tensor"]
NAMES += ["gather", "scatter", "gather_object", "scatter_object_list"]
NAMES += ["all_to_all", "all_to_all_single"]
NAMES += ["all_gather_single", "reduce_scatter_single"]  # since 2.15
COLLECTIVES = [name for name in NAMES if hasattr(torch.distributed, name)]
CUT = "nor on one rank, so gradients of 1 and more ranks agree"


def size_of(given):
    """Return (numbers that a collective moves, dtype), None if set per rank."""
    if given.get("input_split_sizes") or given.get("output_split_sizes"):
        return None, None
    for name in "tensor", "input_tensor", "input", "output_tensor":
        if isinstance(given.get(name), torch.Tensor):
            return given[name].numel(), str(given[name].dtype).removeprefix("torch.")
    return None, None


def has_gradient(tensor):
    """Return whether a gradient will be computed for a value, several numbers."""
    own = getattr(tensor, "requires_grad", False) and tensor.numel() > 1
    return own and torch.is_grad_enabled()


def in_function():
    """Return whether an autograd Function calls, except SyncBatchNorm's."""
    for frame, _ in walk_stack(None):
        owner = frame.f_locals.get(next(iter(frame.f_code.co_varnames), None))
        if isinstance(owner, FunctionCtx):
            return "SyncBatchNorm" not in type(owner).__name__
    return False


class Collectives:
    """Writes the event `collective_call` and what is wrong with a call."""

    def __init__(self, script):
        self.script = script
        self.log = script.log

    def install(self):
        for name in COLLECTIVES:
            replace(f"torch.distributed:{name}", self.collective)

    def collective(self, original, *args, **options):
        """Wrap a collective; other threads call theirs at any time."""
        if threading.current_thread() is not threading.main_thread():
            return original(*args, **options)
        try:
            given = signature(original).bind(*args, **options).arguments
        except TypeError:
            return original(*args, **options)  # it raises its own error
        self.write(original.__name__, given)
        result = original(*args, **options)
        self.script.tell("collective_ends", original.__name__, given, result)
        return result

    def write(self, name, given):
        """Write the event for a collective call, given its arguments by name."""
        self.log.write_way()
        self.log.reducers.add(getattr(self.log.frame(), "f_code", None))
        self.script.tell("collective_begins", name, given)
        joins = in_function() or has_gradient(given.get("tensor")) and "directly"
        numbers, dtype = size_of(given)
        world = torch.distributed.group.WORLD
        self.log.write(
            "collective_call",
            name=name,
            line=self.log.line(),
            by=self.log.called(),
            numbers=numbers,
            dtype=dtype,
            whole=given.get("group") in (None, world),
            joins=joins and not self.script.in_backward,
            back=joins and self.script.in_backward,
        )
        self.write_cut(name, given)

    def write_cut(self, name, given):
        """Record whether a collective cuts off a gradient."""
        tensor = given.get("tensor", given.get("input_tensor"))
        if name.startswith("all_gather") and has_gradient(tensor):
            self.log.found("gather_without_gradient", CUT, name=name)

    def collective_ends(self, name, given, result):
        """Record how many integer keys ranks share."""
        gathered = given.get("object_list", given.get("object_gather_list"))
        if "gather_object" not in name or not gathered:
            return
        dicts = [one for one in gathered if isinstance(one, dict)]
        keys = Counter(key for one in dicts for key in one if type(key) is int)
        twice = sum(count > 1 for count in keys.values())
        self.log.write("gathered", twice=twice)
