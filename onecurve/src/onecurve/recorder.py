"""What a rank does, written down: DDP, and the calls of collectives."""

import threading
from inspect import signature

import torch

from onecurve.apart import Apart
from onecurve.events import bare
from onecurve.identities import own_number
from onecurve.replace import replace

NAMES = ["barrier", "monitored_barrier", "all_reduce", "broadcast", "reduce"]
NAMES += ["all_gather", "all_gather_object", "broadcast_object_list"]
NAMES += ["all_gather_into_tensor", "reduce_scatter", "reduce_scatter_tensor"]
NAMES += ["gather", "scatter", "gather_object", "scatter_object_list"]
NAMES += ["all_to_all", "all_to_all_single"]
NAMES += ["all_gather_single", "reduce_scatter_single"]  # from 2.15 on
COLLECTIVES = [name for name in NAMES if hasattr(torch.distributed, name)]


def numbers_of(given):
    """Return how many numbers a collective moves, by its arguments; None: unknown.

    It is not compared where the script says how many go to each rank.
    """
    if given.get("input_split_sizes") or given.get("output_split_sizes"):
        return None
    for name in "tensor", "input_tensor", "input", "output_tensor":
        if isinstance(given.get(name), torch.Tensor):
            return given[name].numel()
    return None


class Recorder:
    """Has a log get the events `ddp` and `collective_call`.

    Who inherits from it writes down the passes through a network and the steps of an
    optimizer. Nothing that the script computes is changed.
    """

    def __init__(self, log):
        self.log = log
        self.apart = Apart(log)
        self.depth = 0  # of calls of modules
        self.exchanging = False  # whether the next backward pass exchanges gradients
        self.in_backward = False
        self.names = {}  # number of a parameter -> its name in the network
        self.owners = {}  # name of what is trained -> number of the parameter
        self.reducers = []  # of DDP, which are never freed

    def install(self):
        """Put the methods below in place."""
        replace("torch.nn:Module.__call__", self.module_call)
        replace("torch:Tensor.backward", self.any_backward)
        ddp = "torch.nn.parallel:DistributedDataParallel"
        replace(f"{ddp}.__init__", self.ddp_init)
        replace(f"{ddp}.forward", self.wrapper_forward)
        for name in COLLECTIVES:
            replace(f"torch.distributed:{name}", self.collective)

    def line(self):
        """Return where the script is."""
        return self.log.line()

    def parameters(self, optimizer):
        """Return what an optimizer changes, {name in the network: parameter}."""
        found = {}
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                found[self.name_of(own_number(parameter), str(len(found)))] = parameter
        return found

    def name_of(self, key, otherwise):
        """Return the name of a parameter that is trained, which no other one has.

        `key` is its number, `otherwise` its name where no called network has it.
        """
        name = self.names.get(key, otherwise)
        number = 2
        while self.owners.setdefault(name, key) != key:  # another network's
            name = f"{self.names.get(key, otherwise)}, number {number}"
            number += 1
        return name

    def learn_names(self, module):
        """Remember the names of a network's parameters, those without a wrapper's."""
        for name, parameter in module.named_parameters():
            self.names.setdefault(own_number(parameter), bare(name))

    def module_call(self, original, module, *args, **kwargs):
        """Around a call of a module; the outermost one is the network's."""
        if self.depth or self.apart.is_now():
            return original(module, *args, **kwargs)
        self.depth += 1
        try:
            return self.network_call(original, module, *args, **kwargs)
        finally:
            self.depth -= 1

    def network_call(self, original, network, *args, **kwargs):
        """Around a call of the network."""
        return original(network, *args, **kwargs)

    def ddp_init(self, original, ddp, *args, **options):
        """Around the constructor of DDP."""
        original(ddp, *args, **options)
        # Before 2.15, to free a group may wait for ever for its thread, which waits for
        # Python's lock: https://github.com/pytorch/pytorch/issues/56297
        self.reducers.append(ddp.reducer)
        self.log.write("ddp", line=self.line())

    def wrapper_forward(self, original, wrapper, *args, **kwargs):
        """Around DDP's forward pass: it decides whether the backward pass exchanges."""
        if torch.is_grad_enabled() and wrapper.require_backward_grad_sync:
            self.exchanging = True
        return original(wrapper, *args, **kwargs)

    def any_backward(self, original, *args, **options):
        """Around Tensor.backward, also where one rank trains for itself."""
        if self.apart.is_now():
            return original(*args, **options)
        return self.backward(original, *args, **options)

    def backward(self, original, *args, **options):
        """Around Tensor.backward: a collective, where DDP exchanges gradients."""
        if self.in_backward:  # PyTorch calls it again, below a mode of functions
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
        """Around a collective; those of other threads come at any time."""
        if threading.current_thread() is not threading.main_thread():
            return original(*args, **options)
        try:
            given = signature(original).bind(*args, **options).arguments
        except TypeError:
            return original(*args, **options)  # which refuses them in its own words
        self.write_call(original.__name__, given)
        result = original(*args, **options)
        self.collective_ends(original.__name__, given, result)
        return result

    def write_call(self, name, given):
        """Write the event for a call of a collective, given its arguments by name."""
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
        """When this rank is through with the call of a collective."""
