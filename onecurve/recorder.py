"""What a rank does, written down: the base of the lab's recorder and the inspector's.

Nothing in here knows an exercise, or how a script is judged.
"""

import threading
from inspect import signature

import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from onecurve.collectives import COLLECTIVES, numbers_of
from onecurve.replace import replace


class Recorder:
    """Has a log get events: `ddp`, `wrapper` for a pass through it, `collective_call`.

    Who inherits from it writes down the passes through a network and the steps of an
    optimizer. Nothing that the script computes is changed.
    """

    def __init__(self, log):
        self.log = log
        self.depth = 0  # of calls of modules
        self.exchanging = False  # whether the next backward pass exchanges gradients
        self.in_backward = False
        self.names = {}  # id of a parameter -> its name in the network

    def install(self):
        """Put the methods below in place."""
        register_optimizer_step_pre_hook(self.before_step)
        register_optimizer_step_post_hook(self.after_step)
        replace("torch.nn:Module.__call__", self.module_call)
        replace("torch:Tensor.backward", self.backward)
        ddp = "torch.nn.parallel:DistributedDataParallel"
        replace(f"{ddp}.__init__", self.ddp_init)
        replace(f"{ddp}.forward", self.wrapper_forward)
        for name in COLLECTIVES:
            replace(f"torch.distributed:{name}", self.collective)

    def line(self):
        """Return where the script is."""
        return self.log.line()

    def before_step(self, optimizer, args, kwargs):
        """Before a step of an optimizer."""

    def after_step(self, optimizer, args, kwargs):
        """After a step of an optimizer."""

    def parameters(self, optimizer):
        """Return what an optimizer changes, {name in the network: parameter}."""
        found = {}
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                name = self.names.get(id(parameter), str(len(found)))
                if name in found:  # of another network
                    name = f"{name}, number {len(found)}"
                found[name] = parameter
        return found

    def learn_names(self, module):
        """Remember the names of a network's parameters, those without a wrapper's."""
        for name, parameter in module.named_parameters():
            self.names.setdefault(id(parameter), name.removeprefix("module."))

    def module_call(self, original, module, *args, **kwargs):
        """Around a call of a module; the outermost one is the network's."""
        if self.depth:
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
        self.log.write("ddp", line=self.line())

    def wrapper_forward(self, original, wrapper, *args, **kwargs):
        """Around the forward pass of a wrapper.

        With DDP it decides how many numbers the backward pass reduces: all or none.
        """
        grad = torch.is_grad_enabled()
        reduced = 0
        if grad and getattr(wrapper, "require_backward_grad_sync", False):
            weights = [w for w in wrapper.parameters() if w.requires_grad]
            reduced = sum(weight.numel() for weight in weights)
            self.exchanging = True
        name = type(wrapper).__name__
        self.log.write("wrapper", name=name, grad=grad, reduced=reduced)
        return original(wrapper, *args, **kwargs)

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
            numbers=numbers_of(given),
            whole=given.get("group") in (None, world),
        )

    def collective_ends(self, name, given, result):
        """When this rank is through with the call of a collective."""
