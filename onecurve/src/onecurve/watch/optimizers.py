"""Record optimizers, schedulers and gradient clipping."""

import weakref
from inspect import signature

import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from onecurve.set_up.replace import replace
from onecurve.watch.events import digest
from onecurve.watch.identities import own_number
from onecurve.watch.samples import generator_states

OF_SHARDS = "call clip_grad_norm_ of the FSDP wrapper: it adds up all ranks' shards"


def rates_of(optimizer):
    return [float(group["lr"]) for group in optimizer.param_groups]


class Optimizers:
    """Writes the events `made`, `before_step`, `step` and similar ones."""

    def __init__(self, script):
        self.script = script
        self.log = script.log
        self.hooked = weakref.WeakKeyDictionary()  # optimizer -> its last hook
        self.stepping = 0  # depth: an optimizer may call another's step

    def install(self):
        register_optimizer_step_pre_hook(self.hook_last)
        register_optimizer_step_post_hook(self.step_taken)
        for name in "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_":
            replace(f"torch.nn.utils:{name}", self.clip)
        schedulers = "torch.optim.lr_scheduler"
        replace("torch.optim:Optimizer.__init__", self.made)
        for owner in "torch.optim:Optimizer", "torch.nn:Module":
            replace(f"{owner}.zero_grad", self.zero_grad)
        replace(f"{schedulers}:LRScheduler.step", self.schedule)
        replace(f"{schedulers}:ReduceLROnPlateau.step", self.schedule)

    def clip(self, original, parameters, *args, **options):
        if self.script.one_rank.is_now():
            return original(parameters, *args, **options)
        one = isinstance(parameters, torch.Tensor)
        parameters = [parameters] if one else list(parameters)
        self.script.tell("clips", parameters)
        result = original(parameters, *args, **options)
        given = signature(original).bind(parameters, *args, **options).arguments
        norm = given.get("total_norm", result)
        if type(norm) in (torch.Tensor, float):  # a DTensor's covers all ranks
            flat = any(getattr(one, "_fsdp_flattened", False) for one in parameters)
            facts = {"norm": float(norm), "fix": OF_SHARDS if flat else None}
            self.log.write("clip", line=self.log.line(), **facts)
        return result

    def made(self, original, optimizer, *args, **options):
        original(optimizer, *args, **options)
        if self.script.one_rank.begins():
            return
        self.learn_optimized(optimizer)
        line = self.log.line()
        self.script.optimizer_made = line
        self.log.write("made", line=line, rates=rates_of(optimizer))
        self.script.tell("optimizer_made", optimizer)

    def learn_optimized(self, optimizer):
        for group in optimizer.param_groups:
            self.script.optimized.update(own_number(one) for one in group["params"])

    def zero_grad(self, original, *args, **options):
        """Wrap zero_grad(), which may be called too late."""
        if not self.script.one_rank.is_now():
            self.log.write("zero_grad", line=self.log.line())
        return original(*args, **options)

    def schedule(self, original, scheduler, *args, **options):
        """Wrap a scheduler's step, which may take a metric."""
        if self.script.one_rank.is_now():
            return original(scheduler, *args, **options)
        given = signature(original).bind(scheduler, *args, **options).arguments
        metric = float(given["metrics"]) if "metrics" in given else None
        self.log.write("schedule", line=self.log.line(), metric=metric)
        return original(scheduler, *args, **options)

    def hook_last(self, optimizer, args, kwargs):
        """Run `take_step` last: the script's own hooks may reduce gradients."""
        if optimizer in self.hooked:
            self.hooked.pop(optimizer).remove()
        self.hooked[optimizer] = optimizer.register_step_pre_hook(self.take_step)

    def take_step(self, optimizer, args, kwargs):
        """Begin a step; a closure first computes its gradients, maybe several times."""
        if self.script.one_rank.is_now():
            return None
        self.stepping += 1
        told = ["before_step"] + ["step_begins"] * (self.stepping == 1)

        def begin(loss=None):
            while told:
                self.script.tell(told.pop(0), optimizer)
            return loss

        given = signature(type(optimizer).step).bind(*args, **kwargs)
        closure = given.arguments.get("closure")
        if not callable(closure):
            return begin()
        given.arguments["closure"] = lambda: begin(closure())
        return given.args, given.kwargs

    def step_begins(self, optimizer):
        self.learn_optimized(optimizer)
        gradients = {}
        parameters = self.script.parameters(optimizer)
        lacking = [one for one in parameters.values() if one.grad is None]
        known = self.script.names
        self.script.stale = sum(own_number(one) not in known for one in lacking)
        facts = {"count": len(parameters), "stale": self.script.stale}
        self.script.learned |= parameters
        for name, parameter in parameters.items():
            if parameter.grad is not None:
                gradients[name] = digest(parameter.grad)
        line = self.log.line()
        self.log.write("before_step", line=line, gradients=gradients, **facts)

    def step_taken(self, optimizer, args, kwargs):
        if self.script.one_rank.is_now():
            return
        self.script.tell("after_step", optimizer, args, kwargs)
        self.stepping -= 1
        if self.stepping == 0:
            self.script.tell("step_returns", optimizer)
            self.write_step(optimizer)
            self.script.tell("step_ends", optimizer)

    def write_step(self, optimizer):
        script = self.script
        script.steps += 1
        facts = {"rates": rates_of(optimizer), **script.step_facts}
        self.log.write("step", line=self.log.line(), **facts)
        script.trained_on = []
        script.states = generator_states()
