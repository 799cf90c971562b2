"""What is written down of optimizers and schedulers, of clipping and scaling."""

import contextlib
import linecache
import re
from inspect import signature

import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from onecurve.events import digest, is_zero, tensors_in
from onecurve.findings import some
from onecurve.loaders import Loaders
from onecurve.replace import replace
from onecurve.samples import generator_states

MOST_STEPS = 32  # of a script that has no epochs, once it has evaluated
FURTHEST = 160  # of one that has not

FAR = 1_000_000  # steps, by which each schedule has ended
GOES_ON = r"resum|torch\.load|load_state_dict"  # in a script
WHEN = "epoch|step|iter"  # in names of what a checkpoint counts
HELD = {  # what a run goes on by, in the names that a checkpoint holds
    "optimizer": re.compile("optim|param_groups").search,
    "scheduler": re.compile("sched|last_epoch").search,
}


def says_when(saved):
    """Return whether a checkpoint has weights, and says when it was written."""
    counts = any(type(saved[one]) is int and re.search(WHEN, str(one)) for one in saved)
    return counts and any(tensors_in(value) for value in saved.values())


def names_below(value):
    """Yield the names in dicts and lists, however deep."""
    for name, one in value.items() if isinstance(value, dict) else []:
        yield str(name)
        yield from names_below(one)
    for one in value if isinstance(value, list | tuple) else []:
        yield from names_below(one)


def parameters_with_state(saved):
    """Return how many parameters the optimizers' states in a checkpoint have."""
    if not isinstance(saved, dict):
        return 0
    groups = saved.get("param_groups")
    if isinstance(groups, list):
        return sum(len(group["params"]) for group in groups)
    return sum(parameters_with_state(one) for one in saved.values())


def lacking(trained, saved):
    """Return the names of the parameters whose values a checkpoint does not have.

    [] where it has none of them, but an average, say, or where they are shards.
    """
    if any(hasattr(one, "placements") for one in trained.values()):
        return []
    held = {digest(one) for one in tensors_in(saved)}
    lacks = [name for name, one in trained.items() if digest(one) not in held]
    return lacks if len(lacks) < len(trained) else []


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
        self.optimized = set()  # ids of the parameters that optimizers have
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
        replace(f"{schedulers}:LRScheduler.step", self.schedule)
        replace(f"{schedulers}:ReduceLROnPlateau.step", self.schedule)
        replace("torch.amp:GradScaler.__init__", self.scaler_init)
        replace("torch.amp:GradScaler.scale", self.scale)
        replace("torch.amp:GradScaler.unscale_", self.unscale)
        replace("torch:save", self.save)

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

    def save(self, original, obj, *args, **options):
        """Around torch.save: a run goes on from what says an epoch, or a step."""
        if isinstance(obj, dict) and says_when(obj) and self.goes_on():
            held = " ".join(names_below(obj))
            lacks = [one for one in sorted(self.has_state) if not HELD[one](held)]
            if lacks:
                self.log.write("saved", line=self.line(), lacks=lacks)
        if isinstance(obj, dict) and parameters_with_state(obj) >= len(self.learned):
            names = lacking(self.learned, obj)
            if names:
                told = f"parameter {some(names)}"
                self.log.write("saved", line=self.line(), lacks=[told])
        return original(obj, *args, **options)

    def goes_on(self):
        """Return whether the script's file says that a run may go on."""
        frame = self.log.frame()
        path = frame.f_code.co_filename if frame else ""
        return re.search(GOES_ON, "".join(linecache.getlines(path)))

    def clip(self, original, *args, **options):
        """Around the clipping of gradients."""
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
            self.optimized.update(id(one) for one in group["params"])

    def schedule(self, original, scheduler, *args, **options):
        """Around the step of a scheduler, which may go by a number."""
        self.has_state.add("scheduler")
        self.scheduled += 1
        given = signature(original).bind(scheduler, *args, **options).arguments
        metric = float(given["metrics"]) if "metrics" in given else None
        self.log.write("schedule", line=self.line(), metric=metric)
        return original(scheduler, *args, **options)

    def before_step(self, optimizer, args, kwargs):
        """Before a step of an optimizer."""
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
        facts = {"rates": rates, "bases": bases, "id": id(optimizer)}
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
        return self.steps >= FURTHEST or self.end.has_evaluated(self.steps)
