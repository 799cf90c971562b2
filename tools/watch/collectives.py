"""Which collectives a rank calls, and where two ranks part."""

import threading
from inspect import signature
from itertools import zip_longest

import torch

from tools.watch.replace import replace

COLLECTIVES = ["barrier", "monitored_barrier", "all_reduce", "broadcast", "reduce"]
COLLECTIVES += ["all_gather", "all_gather_object", "broadcast_object_list"]
COLLECTIVES += ["all_gather_into_tensor", "reduce_scatter", "reduce_scatter_tensor"]
COLLECTIVES += ["gather", "scatter", "gather_object", "scatter_object_list"]
COLLECTIVES += ["all_to_all", "all_to_all_single"]
COLLECTIVES += ["all_gather_single", "reduce_scatter_single"]  # from 2.15 on
SENDER = "src", "group_src"


class Collectives:
    """Has a log get an event for each call of a collective.

    It is `collective` for the group of all ranks, `grouped` for another.
    """

    def __init__(self, log):
        self.log = log
        self.depth = 0  # of collectives that call others

    def install(self):
        for name in COLLECTIVES:
            if hasattr(torch.distributed, name):
                replace(f"torch.distributed:{name}", self.around)

    def around(self, original, *args, **options):
        """Around a collective; those of other threads come at any time."""
        if threading.current_thread() is not threading.main_thread():
            return original(*args, **options)
        given = signature(original).bind(*args, **options).arguments
        if self.depth == 0:
            self.log.write(
                "collective" if self.is_of_all(given.get("group")) else "grouped",
                name=original.__name__,
                line=self.log.line(),
                numbers=numbers_of(given),
                cuts=cuts_gradient(given),
            )
        self.depth += 1
        try:
            return original(*args, **options)
        finally:
            self.depth -= 1

    def is_of_all(self, group):
        """Return whether a group is that of all ranks."""
        whole = torch.distributed.group.WORLD
        return group is None or group is whole


def numbers_of(given):
    """Return how many numbers a collective moves, by its arguments; None: unknown."""
    for name in "tensor", "input_tensor", "input", "output_tensor":
        if isinstance(given.get(name), torch.Tensor):
            return given[name].numel()
    return None


def cuts_gradient(given):
    """Return whether a collective is handed several numbers that have a gradient.

    What it gives back has none.
    """
    tensor = given.get("tensor", given.get("input_tensor"))
    if not isinstance(tensor, torch.Tensor) or tensor.numel() < 2:
        return False
    return torch.is_grad_enabled() and tensor.requires_grad


def first_difference(calls):
    """Return (number, rank, call of rank 0, call of that rank) where ranks part.

    `calls` has a list of events for each rank. One that has no such call is None. None
    where all ranks make the same calls in the same order.
    """
    for rank in range(1, len(calls)):
        pairs = zip_longest(calls[0], calls[rank])
        for number, (first, other) in enumerate(pairs, start=1):
            if first is None or other is None:
                return number, rank, first, other
            if (first["name"], first["numbers"]) != (other["name"], other["numbers"]):
                return number, rank, first, other
    return None
