"""Record a rank's DDP wrappers and collective calls."""

import threading
from inspect import signature

import torch

from onecurve.set_up.replace import replace
from onecurve.watch.events import bare
from onecurve.watch.identities import own_number
from onecurve.watch.one_rank_blocks import OneRankBlocks

NAMES = ["barrier", "monitored_barrier", "all_reduce", "broadcast", "reduce"]
NAMES += ["all_gather", "all_gather_object", "broadcast_object_list"]
NAMES += ["all_gather_into_tensor", "reduce_scatter", "reduce_scatter_tensor"]
NAMES += ["gather", "scatter", "gather_object", "scatter_object_list"]
NAMES += ["all_to_all", "all_to_all_single"]
NAMES += ["all_gather_single", "reduce_scatter_single"]  # since 2.15
COLLECTIVES = [name for name in NAMES if hasattr(torch.distributed, name)]


def numbers_of(given):
    """Return how many numbers a collective moves; None if unknown or set per rank."""
    if given.get("input_split_sizes") or given.get("output_split_sizes"):
        return None
    for name in "tensor", "input_tensor", "input", "output_tensor":
        if isinstance(given.get(name), torch.Tensor):
            return given[name].numel()
    return None


class Collectives:
    """Writes the events `ddp` and `collective_call`; results don't change."""

    def __init__(self, log):
        self.log = log
        self.apart = OneRankBlocks(log)
        self.depth = 0  # of nested module calls
        self.exchanging = False  # whether the next backward pass exchanges gradients
        self.in_backward = False
        self.names = {}  # own_number of a parameter -> its name in the network
        self.owners = {}  # name of a trained parameter -> its own_number
        self.reducers = []  # DDP's, never freed

    def install(self):
        """Install the hooks below."""
        replace("torch.nn:Module.__call__", self.module_call)
        replace("torch:Tensor.backward", self.any_backward)
        ddp = "torch.nn.parallel:DistributedDataParallel"
        replace(f"{ddp}.__init__", self.ddp_init)
        replace(f"{ddp}.forward", self.wrapper_forward)
        for name in COLLECTIVES:
            replace(f"torch.distributed:{name}", self.collective)

    def line(self):
        """Return the script's current line."""
        return self.log.line()

    def parameters(self, optimizer):
        """Return an optimizer's parameters, {name in the network: parameter}."""
        found = {}
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                found[self.name_of(own_number(parameter), str(len(found)))] = parameter
        return found

    def name_of(self, key, otherwise):
        """Return a unique name for parameter `key`, or `otherwise` if unknown."""
        name = self.names.get(key, otherwise)
        number = 2
        while self.owners.setdefault(name, key) != key:  # another network has it
            name = f"{self.names.get(key, otherwise)}, number {number}"
            number += 1
        return name

    def learn_names(self, module):
        """Remember the names of a network's parameters, without a wrapper's prefix."""
        for name, parameter in module.named_parameters():
            self.names.setdefault(own_number(parameter), bare(name))

    def module_call(self, original, module, *args, **kwargs):
        """Wrap a module's call; the outermost one is the network's."""
        if self.depth or self.apart.is_now():
            return original(module, *args, **kwargs)
        self.depth += 1
        try:
            return self.network_call(original, module, *args, **kwargs)
        finally:
            self.depth -= 1

    def network_call(self, original, network, *args, **kwargs):
        """Wrap the network's call."""
        return original(network, *args, **kwargs)

    def ddp_init(self, original, ddp, *args, **options):
        """Wrap DDP's constructor."""
        original(ddp, *args, **options)
        # May hang if freed before 2.15: https://github.com/pytorch/pytorch/issues/56297
        self.reducers.append(ddp.reducer)
        self.log.write("ddp", line=self.line())

    def wrapper_forward(self, original, wrapper, *args, **kwargs):
        """Wrap DDP's forward, which decides whether backward exchanges gradients."""
        if torch.is_grad_enabled() and wrapper.require_backward_grad_sync:
            self.exchanging = True
        return original(wrapper, *args, **kwargs)

    def any_backward(self, original, *args, **options):
        """Wrap Tensor.backward, including a rank that trains alone."""
        if self.apart.is_now():
            return original(*args, **options)
        return self.backward(original, *args, **options)

    def backward(self, original, *args, **options):
        """Wrap Tensor.backward: a collective if DDP exchanges gradients."""
        if self.in_backward:  # PyTorch calls it again below a TorchFunctionMode
            return original(*args, **options)
        if self.exchanging:
            self.write_call("backward", {})
        self.exchanging = False
        self.in_backward = True
        try:
            return original(*args, **options)
        finally:
            self.in_backward = False

    def collective(self, original, *args, **options):
        """Wrap a collective; other threads call theirs at any time."""
        if threading.current_thread() is not threading.main_thread():
            return original(*args, **options)
        try:
            given = signature(original).bind(*args, **options).arguments
        except TypeError:
            return original(*args, **options)  # it raises its own error
        self.write_call(original.__name__, given)
        result = original(*args, **options)
        self.collective_ends(original.__name__, given, result)
        return result

    def write_call(self, name, given):
        """Write the event for a collective call, given its arguments by name."""
        world = torch.distributed.group.WORLD
        self.log.write(
            "collective_call",
            name=name,
            line=self.line(),
            by=self.log.called(),
            numbers=numbers_of(given),
            whole=given.get("group") in (None, world),
        )

    def collective_ends(self, name, given, result):
        """Run after a collective call."""
