"""What is written down of a run as it is: the events that the rules read."""

from itertools import islice

import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from tools.inspect.cpu import UnsyncedBatchNorm
from tools.inspect.data import Data
from tools.inspect.samples import changed, generator_states, rows
from tools.watch.events import digest
from tools.watch.replace import replace

MOST_STEPS = 24  # of a script that has no epochs


class Hooks(Data):
    """Writes down what a rank does; ends it after some epochs or steps."""

    def __init__(self, log, end):
        super().__init__(log, end)
        self.ddps = []
        self.depth = 0  # of calls of modules
        self.stepping = 0  # an optimizer may call the step of another
        self.in_backward = False
        self.optimizers = {}  # id of an optimizer -> its number
        self.names = {}  # id of a parameter -> its name

    def install(self):
        """Put the methods below in place."""
        super().install()
        register_optimizer_step_pre_hook(self.before_step)
        register_optimizer_step_post_hook(self.after_step)
        replace("torch.nn:Module.__call__", self.module_call)
        replace("torch:Tensor.backward", self.backward)
        ddp = "torch.nn.parallel:DistributedDataParallel"
        replace(f"{ddp}.__init__", self.ddp_init)
        replace(f"{ddp}.forward", self.ddp_forward)
        replace("torch.distributed.fsdp:fully_shard", self.shard)
        replace("torch.optim:Optimizer.zero_grad", self.zero_grad)
        replace("torch.nn:Module.zero_grad", self.module_zero_grad)
        schedulers = "torch.optim.lr_scheduler"
        replace(f"{schedulers}:LRScheduler.step", self.schedule)
        replace(f"{schedulers}:ReduceLROnPlateau.step", self.schedule_by)
        replace("torch.distributed:init_process_group", self.join)
        parallel = "torch.distributed.tensor.parallel"
        replace(f"{parallel}:parallelize_module", self.split_model)
        for name in "send", "recv", "isend", "irecv":
            replace(f"torch.distributed:{name}", self.message)
        for name in "clip_grad_norm_", "clip_grad_value_":
            replace(f"torch.nn.utils:{name}", self.clip)

    def join(self, original, *args, **options):
        """Around init_process_group."""
        self.log.write("joined", line=self.log.line())
        return original(*args, **options)

    def split_model(self, original, *args, **options):
        """Around what splits a model among ranks, which then share their samples."""
        self.log.write("split", line=self.log.line())
        return original(*args, **options)

    def message(self, original, *args, **options):
        """Around a message to one rank: a pipeline's ranks have other weights, too."""
        self.log.write("split", line=self.log.line())
        self.log.write("pipeline", line=self.log.line())
        return original(*args, **options)

    # The network

    def module_call(self, original, module, *args, **kwargs):
        """Around a call of a module; the outermost one is the network's."""
        if self.depth or not any(True for _ in islice(module.parameters(), 1)):
            return original(module, *args, **kwargs)
        self.depth += 1
        self.passes += 1
        self.learn_names(module)
        before = generator_states()
        try:
            return original(module, *args, **kwargs)
        finally:
            self.depth -= 1
            after = generator_states()
            facts = {}
            if not torch.is_grad_enabled():
                facts["buffers"] = self.buffers(module)
            self.log.write(
                "pass",
                line=self.log.line(),
                grad=torch.is_grad_enabled(),
                drawn=changed(before, after),
                drawn_before=changed(self.states or before, before),
                training=module.training,
                inside=any(ddp.module is module for ddp in self.ddps),
                rows=rows([*args, *kwargs.values()]),
                **facts,
            )
            self.states = after

    def learn_names(self, module):
        """Remember the names of a module's parameters."""
        for name, parameter in module.named_parameters():
            self.names.setdefault(id(parameter), name.removeprefix("module."))

    def buffers(self, module):
        """Return digests of a module's buffers, {name: digest}."""
        if UnsyncedBatchNorm.used:
            return {}
        named = module.named_buffers()
        return {name.removeprefix("module."): digest(b) for name, b in named}

    def ddp_init(self, original, ddp, *args, **options):
        """Around the constructor of DDP."""
        original(ddp, *args, **options)
        ddp.exchanges = 0
        ddp.will_exchange = False
        self.ddps.append(ddp)
        self.learn_names(ddp.module)
        self.log.write("ddp", line=self.log.line())

    def shard(self, original, *args, **options):
        """Around fully_shard."""
        self.log.write("shard", line=self.log.line())
        return original(*args, **options)

    def ddp_forward(self, original, ddp, *args, **options):
        """Around a forward pass through DDP."""
        if torch.is_grad_enabled() and ddp.require_backward_grad_sync:
            ddp.will_exchange = True
        return original(ddp, *args, **options)

    def backward(self, original, *args, **options):
        """Around Tensor.backward: with DDP it is a collective."""
        if self.in_backward:  # PyTorch calls it again, below a mode of functions
            return original(*args, **options)
        self.in_backward = True
        self.backwards += 1
        exchanging = [ddp for ddp in self.ddps if ddp.will_exchange]
        self.log.write("backward", line=self.log.line(), meets=bool(exchanging))
        try:
            result = original(*args, **options)
        finally:
            self.in_backward = False
        for ddp in exchanging:
            ddp.exchanges += 1
            ddp.will_exchange = False
        return result

    def zero_grad(self, original, optimizer, *args, **options):
        """Around Optimizer.zero_grad: what was exchanged for it is thrown away."""
        for ddp in self.ddps_of(optimizer):
            ddp.exchanges = 0
        return original(optimizer, *args, **options)

    def module_zero_grad(self, original, module, *args, **options):
        """Around Module.zero_grad: the same."""
        for ddp in self.ddps:
            if module is ddp or module is ddp.module:
                ddp.exchanges = 0
        return original(module, *args, **options)

    def clip(self, original, *args, **options):
        """Around the clipping of gradients."""
        norm = original(*args, **options)
        if type(norm) is torch.Tensor:
            self.log.write("clip", line=self.log.line(), norm=float(norm))
        return norm

    # The optimizer

    def schedule(self, original, scheduler, *args, **options):
        """Around the step of a scheduler."""
        self.log.write("schedule", line=self.log.line(), metric=None)
        return original(scheduler, *args, **options)

    def schedule_by(self, original, scheduler, metrics, *args, **options):
        """Around the step of a scheduler that goes by a number."""
        self.log.write("schedule", line=self.log.line(), metric=float(metrics))
        return original(scheduler, metrics, *args, **options)

    def before_step(self, optimizer, args, kwargs):
        """Before a step of an optimizer."""
        self.stepping += 1
        if self.stepping > 1:
            return
        number = self.optimizers.setdefault(id(optimizer), len(self.optimizers))
        gradients = {}
        for name, parameter in self.parameters(optimizer):
            if parameter.grad is not None and is_replicated(parameter):
                gradients[name] = digest(parameter.grad)
        exchanges = [ddp.exchanges for ddp in self.ddps_of(optimizer)]
        self.log.write(
            "before_step",
            line=self.log.line(),
            optimizer=number,
            gradients=gradients,
            without=all(one.grad is None for _, one in self.parameters(optimizer)),
            exchanges=max(exchanges, default=0),
            wrapped=[name for name, p in self.parameters(optimizer) if self.in_ddp(p)],
        )

    def after_step(self, optimizer, args, kwargs):
        """After a step of an optimizer."""
        self.stepping -= 1
        if self.stepping:
            return
        self.steps += 1
        self.log.write(
            "step",
            line=self.log.line(),
            optimizer=self.optimizers[id(optimizer)],
            rates=[float(group["lr"]) for group in optimizer.param_groups],
            weights={
                name: digest(parameter)
                for name, parameter in self.parameters(optimizer)
                if is_replicated(parameter)
            },
        )
        for ddp in self.ddps_of(optimizer):
            ddp.exchanges = 0
        self.states = generator_states()
        if self.steps >= MOST_STEPS:
            self.end()

    def ddps_of(self, optimizer):
        """Return the DDPs that have parameters of an optimizer."""
        ours = {id(one) for group in optimizer.param_groups for one in group["params"]}
        return [
            ddp for ddp in self.ddps if any(id(one) in ours for one in ddp.parameters())
        ]

    def in_ddp(self, parameter):
        """Return whether a parameter is one of a module that DDP wraps."""
        return any(parameter is one for ddp in self.ddps for one in ddp.parameters())

    def parameters(self, optimizer):
        """Return (name, parameter) of what an optimizer changes."""
        found = {}
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                name = self.names.get(id(parameter), "parameter")
                if name in found:  # of another module
                    name = f"{name}, number {len(found)}"
                found[name] = parameter
        return list(found.items())


def is_replicated(parameter):
    """Return whether each rank has the whole parameter."""
    placements = getattr(parameter, "placements", ())
    return all(placement.is_replicate() for placement in placements)
