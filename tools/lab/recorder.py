"""Record a rank in the lab: the inspector's hooks, and more for the exercises."""

import os
import resource
from inspect import signature

import numpy
import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from onecurve.api import (
    InDouble,
    Log,
    OutputFiles,
    Script,
    digest,
    is_replicated,
    listen,
    load,
    local_part,
    replace,
    tensors_in,
)
from tools.lab import fake_cuda

WORKERS = ["num_workers", "prefetch_factor", "persistent_workers", "timeout"]
WORKERS += ["multiprocessing_context"]
# These load numbers from a file, or from an object that another rank sent.
READERS = "torch:load", "torch.distributed.distributed_c10d:_tensor_to_object"
LARGEST = 2**28  # bytes per file, so that endless output can't fill the disk


def state_of(optimizer):
    """Return how many numbers of optimizer state this rank holds."""
    held = 0
    for state in optimizer.state.values():
        # ZeroRedundancyOptimizer has None for other ranks' state.
        for value in (state or {}).values():
            if isinstance(value, torch.Tensor):
                held += local_part(value).numel()
    return held


def keeps_products():
    """Return whether selective activation checkpointing has kept matrix products."""
    kept = [getattr(mode, "storage", ()) for mode in _get_current_dispatch_mode_stack()]
    return any("mm" in str(operator) for one in kept for operator in one)


def squares_of(tensor):
    """Return the sum of squares of this rank's part of a tensor.

    Uses NumPy, since a fake GPU would take PyTorch's sum for the script's.
    """
    with torch._C.DisableTorchFunction():
        numbers = torch._C.TensorBase.numpy(local_part(tensor).flatten().double())
    return float(numpy.dot(numbers, numbers))


def without_workers(original, loader, *args, **options):
    """Around DataLoader's constructor: drop the workers, which cost time."""
    given = signature(original).bind(loader, *args, **options).arguments
    for name in WORKERS:
        given.pop(name, None)
    original(given.pop("self"), **given)


class Recorder:
    """Listens to a whole run and records what the exercises need.

    It changes no result, except what `reduce` leaves undefined.
    """

    def __init__(self, rank, script, last_step=0):
        self.rank = rank
        self.script = script
        self.log = script.log
        self.last_step = last_step  # after which this process is killed, or 0

    def install(self):
        """Install the hooks below."""
        replace("torch.utils.data:DataLoader.__init__", without_workers)
        replace("torch.distributed:ProcessGroup.send", self.send)

    def first_pass(self, network):
        """Before the first training pass: record the initial weights."""
        if not self.script.networks:
            parts = [digest(parameter) for parameter in network.parameters()]
            self.log.write("start", weights=parts)

    def before_step(self, optimizer):
        """Before an optimizer's step, even one that another optimizer calls."""
        if self.last_step and self.script.steps == self.last_step:
            os._exit(1)
        self.measure(optimizer)
        self.log.write("state", numbers=state_of(optimizer), stepped=False)

    def measure(self, optimizer):
        """Add up an optimizer's gradients, and count the numbers that it may change."""
        squares = own = 0
        parameters = self.script.parameters(optimizer).values()
        held = sum(local_part(parameter).numel() for parameter in parameters)
        for parameter in parameters:
            counts = self.rank == 0 or not is_replicated(parameter)
            if parameter.grad is not None:
                part = squares_of(parameter.grad)
                squares += part * counts
                own += part
        self.script.step_facts = {"squares": squares, "own": own, "held": held}

    def module_begins(self, module, args, kwargs):
        """Before a call of a network (not of a loss): record its input's size."""
        if next(module.parameters(), None) is None:
            return
        if self.script.in_backward:
            if not keeps_products():
                count = len([*module.parameters()])
                self.log.write("recomputed", parameters=count)
        elif torch.is_grad_enabled():
            sizes = [tensor.numel() for tensor in tensors_in([args, kwargs])]
            self.log.write("given", numbers=max(sizes, default=0))

    def send(self, original, group, tensors, *args):
        """Around a group's send, to one rank: record its size."""
        self.log.write("sent", numbers=sum(tensor.numel() for tensor in tensors))
        return original(group, tensors, *args)

    def collective_begins(self, name, given):
        """Before a collective: mark it if a DDP hook calls it."""
        if self.script.in_backward:
            self.log.write("by_hook")

    def after_step(self, optimizer, args, kwargs):
        """After an optimizer's step, even one that another optimizer calls."""
        if any(map(callable, [*args[1:], *kwargs.values()])):
            self.measure(optimizer)  # a closure has computed the gradients
        self.log.write("state", numbers=state_of(optimizer), stepped=True)

    def collective_ends(self, name, given, result):
        """After a collective: overwrite what `reduce` leaves undefined."""
        is_other = self.rank not in map(given.get, ("dst", "group_dst"))
        if name == "reduce" and is_other and result is None:  # not asynchronous
            given["tensor"].detach().fill_(-1)  # Gloo leaves partial sums


def record(rank, folder, path, fake="", last_step=0):
    """Have this process write its events to folder/rankN until the script ends.

    `path` is the script's; `fake` names a function of tools.lab.fake_cuda. With
    `last_step`, the process is killed before its next step.
    """
    log = Log(folder / f"rank{rank}", [path])
    script = Script(log)
    listen(script, more=[Recorder(rank, script, last_step)])
    OutputFiles(None, log).install()
    if torch.get_default_dtype() == torch.float64:
        for name in READERS:
            replace(name, load)
        InDouble().__enter__()  # even if a script asks for float32
    if fake:
        getattr(fake_cuda, fake)(
            lambda kind, **facts: log.write(f"gpu {kind}", **facts)
        )
    resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST, LARGEST))
    return script.ends
