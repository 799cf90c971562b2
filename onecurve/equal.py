"""What several ranks compute in each step: they keep batches, gradients and weights."""

import math
from inspect import signature

import torch

from onecurve.events import is_zero
from onecurve.exact import as_read, in_double
from onecurve.exchange import OwnGradients
from onecurve.hooks import Hooks
from onecurve.replace import replace
from onecurve.samples import OWN, changed, generator_states, generators

STEPS = 12  # that are compared
NUMBERS = 2_400_000  # of each tensor that are kept, evenly spaced: all of a ResNet's
BEGIN = "generators.pt"  # where their states are when an optimizer is made
LOSSES = ["cross_entropy", "nll_loss", "mse_loss", "l1_loss", "smooth_l1_loss"]
LOSSES += ["binary_cross_entropy", "binary_cross_entropy_with_logits", "huber_loss"]


class Steps(Hooks):
    """Keeps batches, and gradients and weights before each step, below `folder`."""

    def __init__(self, log, end, folder, sources):
        super().__init__(log, end)
        self.folder = folder
        self.sources = sources  # the folders of several ranks
        self.taken = 0  # batches since the latest step
        self.lost = False  # whether random numbers were drawn for them
        self.unclipped = {}  # id of a parameter -> its gradient before clipping
        self.own = OwnGradients()
        self.known = set()  # ids of the parameters whose gradients DDP exchanges
        self.wrapped_at = None  # line of the latest wrapper
        self.since = {}  # the latest step: "past", "unsynced", "clipped" ...: lines
        self.losses = []  # of the backward passes since the latest step
        self.after_pass = []  # what gradients were before and after each, if kept
        self.forwards = 0  # passes for training since then
        self.sums = []  # of the losses of all samples, or tokens, since then
        self.in_loss = False
        self.stepped = []  # the parameters of the latest step
        self.shards_left = False  # whether all shards had gradients left of it
        self.short = False  # whether DDP exchanges gradients in shorter numbers

    def install(self):
        """Put the methods below in place."""
        super().install()
        ddp = "torch.nn.parallel:DistributedDataParallel"
        replace(f"{ddp}.register_comm_hook", self.comm_hook)
        for name in LOSSES:
            replace(f"torch.nn.functional:{name}", self.loss_function)

    def comm_hook(self, original, *args, **options):
        """Around the choice of how DDP exchanges: it may round."""
        self.short = True
        return original(*args, **options)

    def made(self, original, one, *args, **options):
        """Around the constructor of an optimizer or a scheduler."""
        super().made(original, one, *args, **options)
        if isinstance(one, torch.optim.Optimizer):
            self.optimizer_made()

    def optimizer_made(self):
        """After an optimizer was made: training begins about here."""
        self.keep(BEGIN, generators())

    def loss_function(self, original, input, target, *args, **options):
        """Around a loss: keep the sum of which it is, or has the mean."""
        outermost = not self.in_loss
        self.in_loss = True
        try:
            loss = original(input, target, *args, **options)
        finally:
            self.in_loss = not outermost
        if outermost and torch.is_grad_enabled() and loss.dim() == 0:
            given = signature(original).bind(input, target, *args, **options).arguments
            is_sum = given.get("reduction") == "sum"
            count = 1 if is_sum else count_of(target, given)
            self.sums.append(loss.detach().item() * count)
        return loss

    def backward(self, original, loss, *args, **options):
        """Around Tensor.backward."""
        outermost = not self.in_backward
        if outermost:
            self.since["early"] = self.since.get("clipped")
            self.since["backward"] = self.line()
        if outermost and not self.losses:
            self.passes_begin()
        super().backward(original, loss, *args, **options)
        if outermost:
            self.losses.append(loss.detach().item() if loss.numel() == 1 else math.nan)
            self.pass_ends()

    def passes_begin(self):
        """Before the first backward pass of a step: look what the last one left."""
        left = [one.grad for one in self.stepped if hasattr(one, "placements")]
        full = [grad for grad in left if grad is not None and not is_zero(grad)]
        self.shards_left = bool(left) and len(full) == len(left)

    def pass_ends(self):
        """After a backward pass."""

    def ddp_init(self, original, ddp, *args, **options):
        """Around the constructor of DDP: it exchanges what can be trained by then."""
        super().ddp_init(original, ddp, *args, **options)
        self.wrapped_at = self.line()
        for one in ddp.parameters():
            if one.requires_grad:
                self.known.add(id(one))

    def wrapper_forward(self, original, wrapper, *args, **kwargs):
        """Around the forward pass of a wrapper."""
        if torch.is_grad_enabled():
            synced = getattr(wrapper, "require_backward_grad_sync", True)
            self.since["unsynced"] = None if synced else self.log.giver(wrapper)
        return super().wrapper_forward(original, wrapper, *args, **kwargs)

    def network_call(self, original, network, *args, **kwargs):
        """Around a call of the network: what flows into its parameters is added up."""
        self.own.watch(network.parameters())
        if torch.is_grad_enabled() and any(network is one for one in self.wrapped):
            self.since["past"] = self.log.giver(network)
        result = super().network_call(original, network, *args, **kwargs)
        if torch.is_grad_enabled() and not self.in_backward:
            self.forwards += 1
            self.forward_ends(f"forward{self.steps}-{self.forwards}.pt")
        return result

    def forward_ends(self, name):
        """After a pass for training: the script may draw its next batch now."""
        self.keep(name, generators())

    def write_call(self, name, given):
        """Remember where the script exchanges gradients by itself."""
        super().write_call(name, given)
        tensor = given.get("tensor")
        if name == "all_reduce" and self.own.is_of_gradients(tensor):
            self.since["reduced"] = self.line()

    def drawn(self):
        """Remember that the script draws random numbers between batch and step."""
        self.lost |= self.taken > 0

    def drawing(self, generator):
        """Before the script draws from a generator of its own: which one is it?"""
        if any(generator is one for one in OWN.values()):
            return
        line = self.line()
        number = sum(name.startswith(f"{line}-") for name in OWN)
        name = f"{line}-{number}"
        OWN[name] = generator
        self.first_drawing(f"own-{name}.pt".replace("/", "_"), generator)

    def first_drawing(self, name, generator):
        """Before the script first draws from a generator of its own."""
        self.keep(name, generator.get_state())

    def next_batch(self, original, reading):
        """Around the reading of a batch, which is kept."""
        with as_read():
            batch = in_double(super().next_batch(original, reading))
        sizes = reading.share["sizes"][reading.batches - 1 :]
        size = sizes[0] if sizes else None
        self.keep(batch_name(reading), (batch, size, generators()))
        return batch

    def batch_came(self, reading):
        """Count a batch."""
        super().batch_came(reading)
        self.taken += 1

    def keep(self, name, value):
        """Write a value below the folder."""
        try:
            torch.save(value, self.folder / name)
        except Exception as error:  # noqa: BLE001, whatever a batch makes of it
            self.cannot_tell(f"its batches cannot be saved: {error}")

    def clip(self, original, parameters, *args, **options):
        """Around clipping: it hides a factor, so what is clipped is kept."""
        if isinstance(parameters, torch.Tensor):
            parameters = [parameters]
        parameters = list(parameters)
        self.since["clipped"] = self.line()
        for one in parameters:
            if one.grad is not None:
                self.unclipped[id(one)] = thinned(one.grad)
        return super().clip(original, parameters, *args, **options)

    def step_begins(self, optimizer):
        """Before a step: keep the gradients."""
        super().step_begins(optimizer)
        given = {}
        unclipped = {}
        weights = {}
        parameters = self.parameters(optimizer)
        for name, parameter in parameters.items():
            weights[name] = thinned(parameter)
            if parameter.grad is not None:
                given[name] = thinned(parameter.grad)
            if id(parameter) in self.unclipped:
                unclipped[name] = self.unclipped[id(parameter)]
        facts = {
            "given": given,
            "unclipped": unclipped,
            "own": self.own_sums(),
            "wrapped": {self.name_of(one, str(one)) for one in self.known},
            "since": {**self.since, "wrapped": self.wrapped_at},
            "losses": self.losses,
            "sums": self.sums,
            "short": self.short,
            "rates": [group["lr"] for group in optimizer.param_groups],
            "kept": self.own.step_begins(parameters.values()) or self.shards_left,
            "after_pass": self.after_pass,
            "weights": weights,
            "taken": self.taken,
            "lost": self.lost or bool(changed(self.states or {}, generator_states())),
            "line": self.since.get("backward") or self.line(),
        }
        self.keep(f"gradients{self.steps}.pt", facts)
        self.stepped = list(parameters.values())

    def own_sums(self):
        """Return what this rank computed by itself, {name of a parameter: tensor}."""
        found = {}
        for one, total in self.own.sums.items():
            found[self.name_of(one, str(one))] = thinned(total)
        return found

    def step_ends(self, optimizer):
        """After a step: begin anew."""
        super().step_ends(optimizer)
        self.taken = 0
        self.lost = False
        self.unclipped = {}
        self.since = {}
        self.losses = []
        self.forwards = 0
        self.sums = []
        self.keep(f"generators{self.steps}.pt", generators())
        if self.steps >= STEPS:
            self.end()


def count_of(target, given):
    """Return how many numbers a loss is the mean of, by its target and arguments."""
    if target.is_floating_point():
        return target.numel()
    return int((target != given.get("ignore_index", -100)).sum())


def batch_name(reading):
    """Return the name of a file for a batch: the same on each rank."""
    facts = reading.facts
    where = str(facts["line"]).replace("/", "_")
    return f"{where}-{facts['number']}-{reading.batches}.pt"


def thinned(tensor):
    """Return at most NUMBERS of the numbers of a tensor; of a DTensor, a collective."""
    tensor = tensor.detach()
    if hasattr(tensor, "full_tensor"):
        tensor = tensor.full_tensor()
    flat = tensor.to_dense().flatten() if tensor.is_sparse else tensor.flatten()
    return flat[:: math.ceil(max(flat.numel(), 1) / NUMBERS)].clone()
