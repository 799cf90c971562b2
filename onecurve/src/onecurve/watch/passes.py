"""Tell when modules, DDP's wrappers and backward passes run."""

import torch
from torch.nn.parameter import is_lazy

from onecurve.set_up.replace import replace
from onecurve.watch.events import bare
from onecurve.watch.identities import own_number


class Passes:
    """Writes the events `ddp` and `backward`; tells about calls of modules."""

    def __init__(self, script, collectives):
        self.script = script
        self.collectives = collectives
        self.depth = 0  # of nested module calls
        self.exchanging = False  # whether the next backward pass exchanges gradients
        self.reducers = []  # DDP's, never freed

    def install(self):
        replace("torch.nn:Module.__call__", self.module_call)
        replace("torch:Tensor.backward", self.backward)
        ddp = "torch.nn.parallel:DistributedDataParallel"
        replace(f"{ddp}.__init__", self.ddp_init)
        replace(f"{ddp}.forward", self.wrapper_forward)

    def module_call(self, original, module, *args, **kwargs):
        """Wrap a module's call; the outermost one is the network's."""
        in_transform = torch._C._functorch.maybe_current_level() is not None
        if self.depth or self.script.one_rank.is_now() or in_transform:
            return original(module, *args, **kwargs)  # a vmap's tensors have no data
        self.depth += 1
        try:
            if any(map(is_lazy, module.parameters())):
                return original(module, *args, **kwargs)  # it creates its parameters
            self.script.tell("module_begins", module, args, kwargs)
            result = self.outermost_call(original, module, *args, **kwargs)
            self.script.tell("module_ends", module)
            return result
        finally:
            self.depth -= 1

    def outermost_call(self, original, module, *args, **kwargs):
        """Wrap it; in a backward pass, it's activation checkpointing's."""
        script = self.script
        if script.in_backward:
            return original(module, *args, **kwargs)
        if next(module.parameters(), None) is None:
            return original(module, *args, **kwargs)
        script.passes += 1
        for name, parameter in module.named_parameters():
            script.names.setdefault(own_number(parameter), bare(name))
        script.tell("pass_begins", module)
        result = original(module, *args, **kwargs)
        script.tell("pass_ends", module, [*args, *kwargs.values()])
        return result

    def ddp_init(self, original, ddp, *args, **options):
        original(ddp, *args, **options)
        # May hang if freed before 2.15: https://github.com/pytorch/pytorch/issues/56297
        self.reducers.append(ddp.reducer)
        named = ddp.module.named_parameters()
        names = [bare(name) for name, one in named if one.requires_grad]
        self.script.log.write("ddp", line=self.script.log.line(), names=names)
        self.script.wrapped_modules.append(ddp.module)
        self.script.tell("wrapped", ddp)

    def wrapper_forward(self, original, wrapper, *args, **kwargs):
        """Wrap DDP's forward, which decides whether backward exchanges gradients."""
        self.script.tell("wrapper_begins", wrapper)
        self.script.log.write_way()  # it may wait for other ranks
        if torch.is_grad_enabled() and wrapper.require_backward_grad_sync:
            self.exchanging = True
        return original(wrapper, *args, **kwargs)

    def backward(self, original, loss, *args, **options):
        """Wrap Tensor.backward: a collective if DDP exchanges gradients."""
        script = self.script
        # PyTorch calls it again below a TorchFunctionMode
        if script.one_rank.is_now() or script.in_backward:
            return original(loss, *args, **options)
        script.tell("backward_begins", loss)
        script.backwards += 1
        value = loss.detach().item() if loss.numel() == 1 else None
        facts = {"loss": value, "targets": script.targets}
        script.log.write("backward", line=script.log.line(), **facts)
        script.targets = []
        if self.exchanging:
            self.collectives.write("backward", {})
        self.exchanging = False
        script.in_backward = True
        try:
            result = original(loss, *args, **options)
        finally:
            script.in_backward = False
        script.tell("backward_ends", loss)
        return result
