"""Keep what a rank computes in each step: gradients, losses and weights."""

import math
import time
from itertools import chain

import torch

from onecurve.feed.stored import thinned
from onecurve.set_up.replace import replace
from onecurve.watch.budget import EPOCH_STEPS, Budget
from onecurve.watch.events import at
from onecurve.watch.identities import own_number
from onecurve.watch.losses import Losses
from onecurve.watch.own_gradients import OwnGradients

STEPS = 12  # to compare
FEW = EPOCH_STEPS + 1  # if a step is slow: an epoch, and what is evaluated after it
SLOW = 2  # CPU seconds of a slow step
FURTHER = 64  # if a small model has not evaluated yet, or has no loader


class StepRecorder:
    """Keeps gradients and weights before each step.

    `each_pass` is whether to keep gradients before and after each backward pass.
    """

    def __init__(self, script, supply, states, each_pass):
        self.script = script
        self.log = script.log
        self.supply = supply
        self.states = states
        self.each_pass = each_pass
        self.unclipped = {}  # id of a parameter -> its gradient before clipping
        self.own = OwnGradients()
        self.known = set()  # numbers of the parameters whose gradients DDP exchanges
        self.wrapped_at = None  # line of the latest wrapper
        self.since = {}  # lines since the latest step, such as "clipped"
        self.losses = []  # of the backward passes since the latest step
        self.after_pass = []  # gradients before and after each, if kept
        self.after = {}  # gradients after the latest backward pass
        self.marks = None  # of these: what any change changes
        self.parts = Losses(script)  # sums and means that the loss consists of
        self.short = False  # whether DDP exchanges gradients in a shorter dtype

    def install(self):
        ddp = "torch.nn.parallel:DistributedDataParallel"
        replace(f"{ddp}.register_comm_hook", self.comm_hook)
        replace("torch.autograd:grad", self.own.grad)
        self.parts.install()
        self.log.line_over = self.note_change

    def comm_hook(self, original, *args, **options):
        """Wrap DDP.register_comm_hook, because the hook may round gradients."""
        self.short = True
        return original(*args, **options)

    def wrapped(self, ddp):
        """Remember the parameters whose gradients DDP will exchange."""
        self.wrapped_at = self.log.line()
        for one in ddp.parameters():
            if one.requires_grad:
                self.known.add(own_number(one))

    def wrapper_begins(self, ddp):
        if torch.is_grad_enabled():
            synced = getattr(ddp, "require_backward_grad_sync", True)
            self.since["unsynced"] = None if synced else self.log.giver(ddp)

    def module_begins(self, module, args, kwargs):
        """Start adding up a network's gradients."""
        self.own.watch(module.parameters())
        is_wrapped = any(module is one for one in self.script.wrapped_modules)
        if torch.is_grad_enabled() and is_wrapped:
            self.since["past"] = self.log.giver(module)

    def backward_begins(self, loss):
        self.since["early"] = self.since.get("clipped")
        self.since["backward"] = self.log.line()
        self.since["changed"] = self.marks = None
        if self.each_pass and not self.losses:
            self.after_pass = [self.gradients()]

    def backward_ends(self, loss):
        self.losses.append(loss.detach().item() if loss.numel() == 1 else math.nan)
        self.after = self.gradients()
        self.after_pass += [self.after] if self.each_pass else []
        self.marks = self.own.marks()

    def note_change(self):
        """Note the first line that changes gradients after the last backward pass."""
        if self.marks and self.marks != self.own.marks():
            line = at(*self.log.now)
            clips = line == self.since.get("clipped")
            self.since["changed"] = None if clips else line
            self.marks = self.own.marks() if clips else None  # the first line counts

    def gradients(self):
        """Return {name: gradient} of all parameters, with 0 for missing gradients."""
        found = {}
        for key, parameter in self.own.watched.items():
            missing = parameter.grad is None
            found[key] = torch.zeros_like(parameter) if missing else parameter.grad
        return self.named(found)

    def named(self, tensors):
        """Return {name of a parameter: thinned tensor}, given them by its number."""
        name_of = self.script.name_of
        return {name_of(one, str(one)): thinned(tensors[one]) for one in tensors}

    def collective_begins(self, name, given):
        """Remember where the script exchanges gradients itself."""
        if name == "all_reduce" and self.own.is_of_gradients(given.get("tensor")):
            self.since["reduced"] = self.log.line()

    def clips(self, parameters):
        """Keep the gradients before clipping, because it hides a factor."""
        self.since["clipped"] = self.log.line()
        for one in parameters:
            if one.grad is not None:
                self.unclipped[id(one)] = thinned(one.grad)

    def step_begins(self, optimizer):
        self.note_change()
        self.marks = None
        parameters = self.script.parameters(optimizer)
        self.own.step_begins(parameters.values())
        named = parameters.items()
        weights = {name: thinned(one) for name, one in named}
        given = {name: thinned(one.grad) for name, one in named if one.grad is not None}
        kept = self.unclipped
        unclipped = {name: kept[id(one)] for name, one in named if id(one) in kept}
        name_of = self.script.name_of
        lines = {"wrapped": self.wrapped_at, "ignored": self.script.ignored_at}
        facts = {
            "states": self.states.kept(),
            "given": given,
            "unclipped": unclipped,
            "own": self.named(self.own.sums),  # what this rank computed itself
            "wrapped": {name_of(one, str(one)) for one in self.known},
            "since": self.since | lines,
            "losses": self.losses,
            "sums": self.parts.sums,
            "means": self.parts.means,
            "short": self.short,
            "rates": [group["lr"] for group in optimizer.param_groups],
            "after_pass": self.after_pass,
            "after": self.after,
            "weights": weights,
            "taken": self.supply.taken,
            "passes": self.script.trained_on,
            "samples": sorted(chain(*self.script.trained_on)),
            "joined": self.supply.draws.joined,
            "lost": self.supply.lost_draws(),
            "line": self.since.get("backward") or self.log.line(),
        }
        self.supply.keep(f"gradients{self.script.steps}.pt", facts)

    def step_ends(self, optimizer):
        self.unclipped = {}
        self.marks = None  # a closure may have set them again
        self.since = {}
        self.losses = []
        self.parts.begin()


class StepBudget(Budget):
    """Ends a run after enough steps to compare."""

    def __init__(self, script, cuts):
        super().__init__(script, cuts)
        self.has_loaders = False
        self.begun = 0  # CPU seconds when the second step began

    def epoch_begins(self, key):
        super().epoch_begins(key)
        self.has_loaders = True

    def step_ends(self, optimizer):
        super().step_ends(optimizer)
        script = self.script
        slow = script.end.folder / "slow"  # tells all ranks to end alike
        if script.steps == 1:
            self.begun = time.process_time()
        elif script.steps == 2 and time.process_time() - self.begun > SLOW:
            slow.mkdir(exist_ok=True)
        is_enough = script.steps >= STEPS and not self.goes_further()
        if is_enough or (script.steps >= FEW and slow.exists()):
            script.end()

    def goes_further(self):
        """Return whether to go on until an evaluation's numbers can be compared.

        Without a loader, that may be the one at the end. With one, the first evaluation
        is enough, since epochs are shortened.
        """
        script = self.script
        has_evaluated = self.has_loaders and script.end.has_evaluated(script.steps)
        return script.steps < FURTHER and script.is_small() and not has_evaluated
