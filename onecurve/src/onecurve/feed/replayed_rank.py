"""Replay the work of one of several ranks in one process."""

from itertools import chain

import torch

from onecurve.feed.merged_batches import MergedBatches
from onecurve.feed.stored import BEGIN, WEIGHTS, WHOLE
from onecurve.set_up.float64 import in_double
from onecurve.watch.events import bare
from onecurve.watch.identities import own_number
from onecurve.watch.samples import set_generators


class ReplayedRank(MergedBatches):
    """Gives a process a rank's batches and random numbers, and the ranks' gradients."""

    def __init__(self, script, folder, sources):
        super().__init__(script, folder, sources)
        self.prepared = []  # networks that got the ranks' weights
        self.latest = BEGIN  # file of the rank's latest generator states
        self.backwards = 0  # since the latest step

    def module_begins(self, module, args, kwargs):
        """Before a network's first training pass: copy the ranks' weights."""
        known = any(module is one for one in self.prepared)
        if torch.is_grad_enabled() and not self.script.steps and not known:
            self.prepared.append(module)
            path = self.sources[0] / WEIGHTS
            if path.exists():
                self.begin_with(torch.load(path), module)

    @torch.no_grad()
    def begin_with(self, weights, network):
        """Copy the ranks' weights by name, except for parameters split here."""
        for name, parameter in network.named_parameters():
            value = weights.get(bare(name))
            is_whole = value is not None and value.numel() == parameter.numel()
            if is_whole and not hasattr(parameter, "placements"):
                parameter.copy_(value)

    def optimizer_made(self, optimizer):
        super().optimizer_made(optimizer)
        self.go_on_from(BEGIN)

    def go_on_from(self, name):
        """Restore the rank's generators from a file, if it exists."""
        path = self.sources[0] / name
        if path.exists():
            set_generators(torch.load(path, weights_only=False))

    def first_drawing(self, name, generator):
        """Before a generator's first draw: restore the rank's state."""
        path = self.sources[0] / name
        if path.exists():
            generator.set_state(torch.load(path, weights_only=False))

    def draw_for_training(self, function, *args, **options):
        """Draw random numbers: the generators' states make them the rank's."""
        return function(*args, **options)

    def pass_is_over(self, name):
        """After a training pass: restore the rank's generators, or its latest ones."""
        if (self.sources[0] / name).exists():
            self.latest = name
        self.go_on_from(self.latest)

    def together(self, kept, reading):
        batch, _, states, _ = kept[0]
        set_generators(states)
        return in_double(batch)

    def backward_ends(self, loss):
        """After a step's last pass: set the ranks' mean, which a script may change."""
        self.backwards += 1
        theirs = self.record()
        if not theirs or len(theirs["losses"]) != self.backwards:
            return
        for one in chain(*(network.parameters() for network in self.script.networks)):
            mean = theirs["after"].get(self.script.names.get(own_number(one)))
            if mean is not None and one.grad is not None and len(mean) == one.numel():
                one.grad.copy_(mean.view_as(one))

    def step_begins(self, optimizer):
        """Before a step: set the ranks' gradients, so that weights match."""
        super().step_begins(optimizer)
        if not self.theirs:
            self.script.end()
        path = self.sources[0] / WHOLE.format(self.script.steps)
        given = torch.load(path) if path.exists() else {}
        for name, parameter in self.script.parameters(optimizer).items():
            if name in given and given[name].shape == parameter.shape:
                parameter.grad = given[name]

    def step_ends(self, optimizer):
        super().step_ends(optimizer)
        self.backwards = 0
        self.go_on_from(f"generators{self.script.steps}.pt")
