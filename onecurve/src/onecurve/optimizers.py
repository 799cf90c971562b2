"""What is written down of optimizers and schedulers, of clipping and scaling."""

import contextlib
from inspect import signature

import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from onecurve.events import digest, is_zero
from onecurve.identities import own_number
from onecurve.loaders import Loaders
from onecurve.replace import replace
from onecurve.samples import generator_states

MOST_STEPS = 32  # of a script that has no epochs, once it has evaluated
FURTHEST = 160  # of one that has not, or of a small model: some come to their end
SMALL = 300_000  # numbers of such a model

FAR = 1_000_000  # steps, by which each schedule has ended


def length_of(schedule):
    """Return after how many steps a schedule has ended, None where it never does.

    Nor does a warm-up, after which there is more to come.
    """
    rises = getattr(schedule, "end_factor", 0) >= getattr(schedule, "start_factor", 1)
    for name in ["total_steps", "T_max"] + ["total_iters"] * (not rises):
        if hasattr(schedule, name):
            return getattr(schedule, name)
    for factor in getattr(schedule, "lr_lambdas", [])[:1]:
        with contextlib.suppress(Exception):  # the script's own function
            return end_of(factor)
    return None


def end_of(factor):
    """Return from which step on a factor falls no more, None where it never does."""
    last = factor(FAR)
    if factor(FAR // 2) != last or factor(FAR // 3) != last:
        return None
    before, end = 0, FAR
    while end - before > 1:
        middle = (before + end) // 2
        if factor(middle) == last:
            end = middle
        else:
            before = middle
    return end if factor(before) > last else None


class Optimizers(Loaders):
    """Writes down the steps that a rank takes; ends it after some without epochs."""

    def __init__(self, log, end=None):
        super().__init__(log, end)
        self.optimized = set()  # numbers of the parameters that optimizers have
        self.optimizer_line = None  # that has made the latest one
        self.stepping = 0  # an optimizer may call the step of another
        self.scheduled = 0  # steps of schedulers
        self.scaled = None  # line that has scaled a loss, until gradients no more are
        self.learned = {}  # name -> parameter that an optimizer has changed
        self.has_state = set()  # of "optimizer" and "scheduler": what a run goes on by

    def install(self):
        """Put the methods below in place."""
        super().install()
        register_optimizer_step_pre_hook(self.before_step)
        register_optimizer_step_post_hook(self.after_step)
        for name in "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_":
            replace(f"torch.nn.utils:{name}", self.clip)
        schedulers = "torch.optim.lr_scheduler"
        replace(f"{schedulers}:LRScheduler.__init__", self.made)
        replace("torch.optim:Optimizer.__init__", self.made)
        for owner in "torch.optim:Optimizer", "torch.nn:Module":
            replace(f"{owner}.zero_grad", self.zero_grad)
        replace(f"{schedulers}:LRScheduler.step", self.schedule)
        replace(f"{schedulers}:ReduceLROnPlateau.step", self.schedule)
        replace("torch.amp:GradScaler.__init__", self.scaler_init)
        replace("torch.amp:GradScaler.scale", self.scale)
        replace("torch.amp:GradScaler.unscale_", self.unscale)

    def scaler_init(self, original, scaler, *args, **options):
        """Around the constructor of a scaler, which only a GPU may enable."""
        original(scaler, *args, **options)
        given = signature(original).bind(scaler, *args, **options).arguments
        scaler.asked_for = given.get("enabled", True)

    def scale(self, original, scaler, *args, **options):
        """Around the scaling of a loss."""
        self.scaled = self.line() if scaler.asked_for else None
        return original(scaler, *args, **options)

    def unscale(self, original, scaler, *args, **options):
        """Around the way back of gradients to their own size."""
        self.scaled = None
        return original(scaler, *args, **options)

    def clip(self, original, *args, **options):
        """Around the clipping of gradients."""
        if self.apart.is_now():
            return original(*args, **options)
        if self.scaled:
            self.log.found("scaled", f"the loss is scaled at {self.scaled}")
        result = original(*args, **options)
        given = signature(original).bind(*args, **options).arguments
        norm = given.get("total_norm", result)
        if type(norm) in (torch.Tensor, float):  # a DTensor's is that of all ranks
            self.log.write("clip", line=self.line(), norm=float(norm))
        return result

    def made(self, original, one, *args, **options):
        """Around the constructor of an optimizer or a scheduler."""
        original(one, *args, **options)
        schedules = not isinstance(one, torch.optim.Optimizer)
        apart = self.apart.is_now() if schedules else self.apart.begins()
        if apart:
            return
        if not schedules:
            self.learn_optimized(one)
            self.optimizer_line = self.line()
        facts = {"schedules": schedules, "length": schedules and length_of(one)}
        if not schedules:
            facts["rates"] = [float(group["lr"]) for group in one.param_groups]
        self.log.write("made", line=self.line(), **facts)

    def learn_optimized(self, optimizer):
        """Remember which parameters an optimizer has."""
        for group in optimizer.param_groups:
            self.optimized.update(own_number(one) for one in group["params"])

    def zero_grad(self, original, *args, **options):
        """Around the setting to zero of gradients, which may come too late."""
        if not self.apart.is_now():
            self.log.write("zero_grad", line=self.line())
        return original(*args, **options)

    def schedule(self, original, scheduler, *args, **options):
        """Around the step of a scheduler, which may go by a number."""
        if self.apart.is_now():
            return original(scheduler, *args, **options)
        self.has_state.add("scheduler")
        self.scheduled += 1
        given = signature(original).bind(scheduler, *args, **options).arguments
        metric = float(given["metrics"]) if "metrics" in given else None
        self.log.write("schedule", line=self.line(), metric=metric)
        return original(scheduler, *args, **options)

    def before_step(self, optimizer, args, kwargs):
        """Before a step of an optimizer."""
        if self.apart.is_now():
            return
        self.stepping += 1
        if self.stepping == 1:
            self.step_begins(optimizer)

    def step_begins(self, optimizer):
        """Before the step of an optimizer that no other one calls."""
        self.learn_optimized(optimizer)
        gradients = {}
        zero = True
        parameters = self.parameters(optimizer)
        self.learned |= parameters
        for name, parameter in parameters.items():
            if parameter.grad is not None:
                gradients[name] = digest(parameter.grad)
                zero = zero and is_zero(parameter.grad)
        line = self.line()
        self.log.write("before_step", line=line, gradients=gradients, zero=zero)

    def after_step(self, optimizer, args, kwargs):
        """After a step of an optimizer."""
        if self.apart.is_now():
            return
        self.stepping -= 1
        if self.stepping == 0:
            self.step_ends(optimizer)

    def step_facts(self):
        """Return what else is to be written down of a step, as a dict."""
        return {}

    def step_ends(self, optimizer):
        """After the step of an optimizer that no other one calls."""
        self.steps += 1
        self.scaled = None
        if any(optimizer.state.values()):
            self.has_state.add("optimizer")
        groups = optimizer.param_groups
        rates = [float(group["lr"]) for group in groups]
        bases = [float(group.get("initial_lr", group["lr"])) for group in groups]
        facts = {"rates": rates, "bases": bases, "id": own_number(optimizer)}
        facts |= {"scheduled": self.scheduled, "samples": len(self.trained_on)}
        self.log.write("step", line=self.line(), **facts, **self.step_facts())
        self.trained_on = []
        self.states = generator_states()
        if self.end and self.has_enough():
            self.finish()

    def has_enough(self):
        """Return whether a script without epochs has taken enough steps."""
        if self.steps < MOST_STEPS:
            return False
        evaluated = self.end.has_evaluated(self.steps)
        return self.steps >= FURTHEST or (evaluated and not self.is_small())

    def is_small(self):
        """Return whether the parameters that optimizers have changed are few."""
        return sum(one.numel() for one in self.learned.values()) <= SMALL
