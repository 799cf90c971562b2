"""Record optimizers, schedulers, gradient clipping and loss scaling."""

import contextlib
import weakref
from inspect import signature

import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from onecurve.set_up.replace import replace
from onecurve.watch.events import digest, is_zero
from onecurve.watch.identities import own_number
from onecurve.watch.loaders import Loaders
from onecurve.watch.samples import generator_states

MOST_STEPS = 32  # without epochs, once the script has evaluated
FURTHEST = 160  # if it hasn't, or the model is small: some scripts finish
SMALL = 300_000  # parameters of a small model
FAR = 1_000_000  # steps, more than any schedule has


def length_of(schedule):
    """Return a schedule's length in steps; None for a warm-up or one without an end."""
    rises = getattr(schedule, "end_factor", 0) >= getattr(schedule, "start_factor", 1)
    for name in ["total_steps", "T_max"] + ["total_iters"] * (not rises):
        if hasattr(schedule, name):
            return getattr(schedule, name)
    for factor in getattr(schedule, "lr_lambdas", [])[:1]:
        with contextlib.suppress(Exception):  # raised by the script's function
            return end_of(factor)
    return None


def end_of(factor):
    """Return the step after which a factor stops falling, or None."""
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
    """Records a rank's steps; ends it after enough steps if there are no epochs."""

    def __init__(self, log, end=None):
        super().__init__(log, end)
        self.optimized = set()  # own_numbers of the parameters in optimizers
        self.optimizer_line = None  # of the latest constructor call
        self.hooked = weakref.WeakKeyDictionary()  # optimizer -> its last hook
        self.stepping = 0  # depth: an optimizer may call another's step
        self.scheduled = 0  # scheduler steps
        self.scaled = None  # line that scaled the loss, until gradients are unscaled
        self.learned = {}  # name -> parameter that an optimizer has changed
        self.has_state = set()  # of "optimizer" and "scheduler": needed to resume

    def install(self):
        """Install the hooks below."""
        super().install()
        register_optimizer_step_pre_hook(self.hook_last)
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
        """Wrap GradScaler's constructor, which may only enable it on GPUs."""
        original(scaler, *args, **options)
        given = signature(original).bind(scaler, *args, **options).arguments
        scaler.asked_for = given.get("enabled", True)

    def scale(self, original, scaler, *args, **options):
        """Wrap GradScaler.scale."""
        self.scaled = self.line() if scaler.asked_for else None
        return original(scaler, *args, **options)

    def unscale(self, original, scaler, *args, **options):
        """Wrap GradScaler.unscale_."""
        self.scaled = None
        return original(scaler, *args, **options)

    def clip(self, original, *args, **options):
        """Wrap gradient clipping."""
        if self.apart.is_now():
            return original(*args, **options)
        if self.scaled:
            self.log.found("scaled", f"the loss is scaled at {self.scaled}")
        result = original(*args, **options)
        given = signature(original).bind(*args, **options).arguments
        norm = given.get("total_norm", result)
        if type(norm) in (torch.Tensor, float):  # a DTensor's covers all ranks
            self.log.write("clip", line=self.line(), norm=float(norm))
        return result

    def made(self, original, one, *args, **options):
        """Wrap the constructor of an optimizer or scheduler."""
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
        """Remember an optimizer's parameters."""
        for group in optimizer.param_groups:
            self.optimized.update(own_number(one) for one in group["params"])

    def zero_grad(self, original, *args, **options):
        """Wrap zero_grad(), which may be called too late."""
        if not self.apart.is_now():
            self.log.write("zero_grad", line=self.line())
        return original(*args, **options)

    def schedule(self, original, scheduler, *args, **options):
        """Wrap a scheduler's step, which may take a metric."""
        if self.apart.is_now():
            return original(scheduler, *args, **options)
        self.has_state.add("scheduler")
        self.scheduled += 1
        given = signature(original).bind(scheduler, *args, **options).arguments
        metric = float(given["metrics"]) if "metrics" in given else None
        self.log.write("schedule", line=self.line(), metric=metric)
        return original(scheduler, *args, **options)

    def hook_last(self, optimizer, args, kwargs):
        """Run `before_step` last: the script's own hooks may reduce gradients."""
        if optimizer in self.hooked:
            self.hooked.pop(optimizer).remove()
        self.hooked[optimizer] = optimizer.register_step_pre_hook(self.before_step)

    def before_step(self, optimizer, args, kwargs):
        """Before an optimizer's step."""
        if self.apart.is_now():
            return
        self.stepping += 1
        if self.stepping == 1:
            self.step_begins(optimizer)

    def step_begins(self, optimizer):
        """Before an outermost step: record gradients."""
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
        """After an optimizer's step."""
        if self.apart.is_now():
            return
        self.stepping -= 1
        if self.stepping == 0:
            self.step_ends(optimizer)

    def step_facts(self):
        """Return additional facts about a step."""
        return {}

    def step_ends(self, optimizer):
        """After an outermost step: record it."""
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
        """Return whether the trained model is small."""
        return sum(one.numel() for one in self.learned.values()) <= SMALL
