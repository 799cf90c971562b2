"""Record a rank in the lab: the inspector's hooks, and more for the exercises."""

import os
import resource
from inspect import signature

import numpy
import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from onecurve.api import (
    Hooks,
    InDouble,
    Log,
    OutputFiles,
    digest,
    is_replicated,
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


class Recorder(Hooks):
    """Hooks for a whole run that also record what the exercises need.

    They change no result, except what `reduce` leaves undefined.
    """

    def __init__(self, rank, log, last_step=0):
        super().__init__(log)
        self.rank = rank
        self.last_step = last_step  # after which this process is killed, or 0
        self.squares = 0  # of whole gradients on rank 0, of sharded ones on all
        self.own = 0  # of all gradients on this rank
        self.held = 0  # numbers that the optimizer may change

    def training_begins(self, network):
        """Before a training pass: record the initial weights, once."""
        if not self.networks:
            parts = [digest(parameter) for parameter in network.parameters()]
            self.log.write("start", weights=parts)
        super().training_begins(network)

    def before_step(self, optimizer, args, kwargs):
        """Before an optimizer's step, even one that another optimizer calls."""
        if self.last_step and self.steps == self.last_step:
            os._exit(1)
        self.measure(optimizer)
        self.log.write("state", numbers=state_of(optimizer), stepped=False)
        super().before_step(optimizer, args, kwargs)

    def measure(self, optimizer):
        """Add up an optimizer's gradients, and count the numbers that it may change."""
        self.squares = self.own = 0
        parameters = self.parameters(optimizer).values()
        self.held = sum(local_part(parameter).numel() for parameter in parameters)
        for parameter in parameters:
            counts = self.rank == 0 or not is_replicated(parameter)
            if parameter.grad is not None:
                squares = squares_of(parameter.grad)
                self.squares += squares * counts
                self.own += squares

    def step_facts(self):
        """Return the squared gradient norm and how many numbers the step may change."""
        return {"squares": self.squares, "own": self.own, "held": self.held}

    def network_call(self, original, network, *args, **kwargs):
        """Around a call of the network (not of a loss): record its input's size."""
        numbers = max((one.numel() for one in tensors_in([args, kwargs])), default=0)
        parameters = len([*network.parameters()])
        if self.in_backward and parameters and not keeps_products():
            self.log.write("recomputed", parameters=parameters)
        if torch.is_grad_enabled() and not self.in_backward and parameters:
            self.log.write("given", numbers=numbers)
        return super().network_call(original, network, *args, **kwargs)

    def send(self, original, group, tensors, *args):
        """Around a group's send, to one rank: record its size."""
        self.log.write("sent", numbers=sum(tensor.numel() for tensor in tensors))
        return original(group, tensors, *args)

    def write_call(self, name, given):
        """Record a collective, and mark it if a DDP hook calls it."""
        if self.in_backward:
            self.log.write("by_hook")
        super().write_call(name, given)

    def after_step(self, optimizer, args, kwargs):
        """After an optimizer's step, even one that another optimizer calls."""
        if any(map(callable, [*args[1:], *kwargs.values()])):
            self.measure(optimizer)  # a closure has computed the gradients
        self.log.write("state", numbers=state_of(optimizer), stepped=True)
        super().after_step(optimizer, args, kwargs)

    def loader_init(self, original, loader, *args, **options):
        """Around DataLoader's constructor: drop the workers, which cost time."""
        given = signature(original).bind(loader, *args, **options).arguments
        for name in WORKERS:
            given.pop(name, None)
        super().loader_init(original, given.pop("self"), **given)

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
    recorder = Recorder(rank, log, last_step)
    recorder.install()
    replace("torch.distributed:ProcessGroup.send", recorder.send)
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
    return recorder.script_ends
