"""A rank of the lab: the judge's recorder, and what exercises ask for besides."""

import resource
from inspect import signature

import numpy
import torch

from onecurve.api import (
    Files,
    Hooks,
    InDouble,
    Log,
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
# What reads numbers that are stored, or that another rank has sent as an object.
READERS = "torch:load", "torch.distributed.distributed_c10d:_tensor_to_object"
LARGEST = 2**28  # bytes of a file: a script that prints for ever must not fill the disk


def state_of(optimizer):
    """Return how many numbers of state an optimizer has on this rank."""
    held = 0
    for state in optimizer.state.values():
        # None: another rank's, in ZeroRedundancyOptimizer
        for value in (state or {}).values():
            if isinstance(value, torch.Tensor):
                held += local_part(value).numel()
    return held


def squares_of(tensor):
    """Return the sum of the squares of what this rank has of a tensor.

    NumPy adds up: a fake GPU would count a sum of PyTorch's as the script's.
    """
    with torch._C.DisableTorchFunction():
        numbers = torch._C.TensorBase.numpy(local_part(tensor).flatten().double())
    return float(numpy.dot(numbers, numbers))


class Recorder(Hooks):
    """Hooks of a whole run, which write down besides what the exercises ask for.

    Nothing that the script computes is changed by it, but for data loaders' workers and
    what `reduce` leaves undefined.
    """

    def __init__(self, rank, log):
        super().__init__(log)
        self.rank = rank
        self.squares = 0  # of whole gradients on rank 0, of sharded ones on all
        self.held = 0  # numbers that the optimizer may change

    def training_begins(self, network):
        """Before a pass for training: with which weights the first one begins."""
        if not self.networks:
            parts = [digest(parameter) for parameter in network.parameters()]
            self.log.write("start", weights=parts)
        super().training_begins(network)

    def before_step(self, optimizer, args, kwargs):
        """Before a step of an optimizer, also of one that another one calls."""
        self.squares = 0
        parameters = self.parameters(optimizer).values()
        self.held = sum(local_part(parameter).numel() for parameter in parameters)
        for parameter in parameters:
            counts = self.rank == 0 or not is_replicated(parameter)
            if counts and parameter.grad is not None:
                self.squares += squares_of(parameter.grad)
        self.log.write("state", numbers=state_of(optimizer), stepped=False)
        super().before_step(optimizer, args, kwargs)

    def step_facts(self):
        """Return how long the gradient was, squared, and how many numbers change."""
        return {"squares": self.squares, "held": self.held}

    def network_call(self, original, network, *args, **kwargs):
        """Around a call of the network, not of a loss: how many numbers it is given."""
        numbers = max((one.numel() for one in tensors_in([args, kwargs])), default=0)
        if torch.is_grad_enabled() and not self.in_backward and [*network.parameters()]:
            self.log.write("given", numbers=numbers)
        return super().network_call(original, network, *args, **kwargs)

    def write_call(self, name, given):
        """Write the event for a collective; one of DDP's hooks is marked."""
        if self.in_backward:
            self.log.write("by_hook")
        super().write_call(name, given)

    def after_step(self, optimizer, args, kwargs):
        """After a step of an optimizer, also of one that another one calls."""
        self.log.write("state", numbers=state_of(optimizer), stepped=True)
        super().after_step(optimizer, args, kwargs)

    def loader_init(self, original, loader, *args, **options):
        """Around the constructor of a DataLoader: without workers, which cost time."""
        given = signature(original).bind(loader, *args, **options).arguments
        for name in WORKERS:
            given.pop(name, None)
        super().loader_init(original, given.pop("self"), **given)

    def collective_ends(self, name, given, result):
        """When a collective returns."""
        is_other = self.rank not in map(given.get, ("dst", "group_dst"))
        if name == "reduce" and is_other and result is None:  # not asynchronous
            given["tensor"].detach().fill_(-1)  # undefined: Gloo leaves partial sums


def record(rank, folder, path, fake=""):
    """Have this process write what it does to folder/rankN, until the script ends.

    `path` is the script's. `fake` names a function of tools.lab.fake_cuda, called with
    a function that writes an event.
    """
    log = Log(folder / f"rank{rank}", [path])
    recorder = Recorder(rank, log)
    recorder.install()
    Files(None, log).install()
    if torch.get_default_dtype() == torch.float64:
        for name in READERS:
            replace(name, load)
        # where a script asks for float32, too
        InDouble().__enter__()
    if fake:
        getattr(fake_cuda, fake)(
            lambda kind, **facts: log.write(f"gpu {kind}", **facts)
        )
    resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST, LARGEST))
    return recorder.script_ends
