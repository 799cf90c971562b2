"""The work of one of several ranks, done again by one process."""

import torch

from onecurve.events import bare
from onecurve.kept import BEGIN, restored, thinned
from onecurve.merged import Merged
from onecurve.samples import set_generators


class Alone(Merged):
    """The work of one of several ranks in one process: its batches, random numbers.

    Each step is taken by the gradients of the several ranks, so weights stay theirs.
    """

    def __init__(self, log, end, folder, sources):
        super().__init__(log, end, folder, sources)
        self.prepared = []  # networks that have the several ranks' weights
        self.latest = BEGIN  # of the rank's generators after a pass for training

    def network_call(self, original, network, *args, **kwargs):
        """Around a call of the network: it begins with the several ranks' weights."""
        known = any(network is one for one in self.prepared)
        if torch.is_grad_enabled() and not self.steps and not known:
            self.prepared.append(network)
            path = self.sources[0] / "gradients0.pt"
            if path.exists():
                weights = torch.load(path, weights_only=False)["weights"]
                self.begin_with(weights, network)
        return super().network_call(original, network, *args, **kwargs)

    @torch.no_grad()
    def begin_with(self, weights, network):
        """Give a network's parameters the values of the several ranks', by their names.

        Those that are split here, too, stay what they are.
        """
        for name, parameter in network.named_parameters():
            value = weights.get(bare(name))
            is_whole = value is not None and value.numel() == parameter.numel()
            if is_whole and not hasattr(parameter, "placements"):
                parameter.copy_(value.view_as(parameter))

    def optimizer_made(self):
        """After an optimizer was made."""
        super().optimizer_made()
        self.go_on_from(BEGIN)

    def go_on_from(self, name):
        """Set the generators as they were on the rank, where that was kept."""
        path = self.sources[0] / name
        if path.exists():
            set_generators(torch.load(path, weights_only=False))

    def first_drawing(self, name, generator):
        """Before the script first draws from a generator: it goes on as the rank's."""
        path = self.sources[0] / name
        if path.exists():
            generator.set_state(torch.load(path, weights_only=False))

    def draw_for_training(self, function, *args, **options):
        """Draw random numbers: they are the rank's by the state of its generators."""
        return function(*args, **options)

    def forward_ends(self, name):
        """After a pass for training: the generators go on as the rank's did.

        Of more passes than the rank's, the last ones go on from where its last ended.
        """
        if (self.sources[0] / name).exists():
            self.latest = name
        self.go_on_from(self.latest)

    def together(self, kept, reading):
        """Return the rank's batch; its generators go on from there."""
        batch, _, states, _ = kept[0]
        set_generators(states)
        return batch

    def passes_begin(self):
        """Before the first backward pass of a step."""
        super().passes_begin()
        self.after_pass = [self.gradients()]

    def pass_ends(self):
        """After a backward pass."""
        self.after_pass.append(self.gradients())

    def gradients(self):
        """Return the gradients of all parameters by name, 0 where there is none."""
        found = {}
        for key, parameter in self.own.watched.items():
            gradient = parameter.grad
            gradient = torch.zeros_like(parameter) if gradient is None else gradient
            found[self.name_of(key, str(key))] = thinned(gradient)
        return found

    def step_begins(self, optimizer):
        """Before a step: it gets the gradients of the several ranks, too."""
        super().step_begins(optimizer)
        if not self.theirs:
            self.end()
        given = self.theirs["given"]
        for name, parameter in self.parameters(optimizer).items():
            whole = restored(given[name], parameter) if name in given else None
            if whole is not None:
                parameter.grad = whole

    def step_ends(self, optimizer):
        """After a step."""
        super().step_ends(optimizer)
        self.go_on_from(f"generators{self.steps}.pt")
