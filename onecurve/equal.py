"""What several ranks compute in each step, and what one does of the same batches.

The several ranks keep the batches that they take, and before each step the gradients.
The one rank takes those batches merged.
"""

import math
from inspect import signature

import torch

from onecurve.exact import as_read, in_double, like
from onecurve.exchange import OwnGradients
from onecurve.hooks import Hooks
from onecurve.replace import replace
from onecurve.samples import changed, generator_states, generators, set_generators

STEPS = 6  # that are compared
NUMBERS = 2_000_000  # of each tensor that are kept, evenly spaced
BEGIN = "generators.pt"  # where their states are when an optimizer is made
LOSSES = ["cross_entropy", "nll_loss", "mse_loss", "l1_loss", "smooth_l1_loss"]
LOSSES += ["binary_cross_entropy", "binary_cross_entropy_with_logits", "huber_loss"]


class CannotTell(Exception):
    """What one rank would compute of the same samples is not known: says why."""


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
        self.since = {}  # the latest step: "past", "unsynced", "clipped": lines
        self.losses = []  # of the backward passes since the latest step
        self.sums = []  # of the losses of all samples, or tokens, since then
        self.in_loss = False

    def install(self):
        """Put the methods below in place."""
        super().install()
        replace("torch.optim:Optimizer.__init__", self.optimizer_made)
        for name in LOSSES:
            replace(f"torch.nn.functional:{name}", self.loss_function)

    def optimizer_made(self, original, optimizer, *args, **options):
        """Around the constructor of an optimizer: training begins about here."""
        original(optimizer, *args, **options)
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
        if outermost and not self.losses:
            self.passes_begin()
        super().backward(original, loss, *args, **options)
        if outermost:
            self.losses.append(loss.detach().item() if loss.numel() == 1 else math.nan)
            self.pass_ends()

    def passes_begin(self):
        """Before the first backward pass of a step."""

    def pass_ends(self):
        """After a backward pass."""

    def ddp_init(self, original, ddp, *args, **options):
        """Around the constructor of DDP: it exchanges what can be trained by then."""
        super().ddp_init(original, ddp, *args, **options)
        for one in ddp.parameters():
            if one.requires_grad:
                self.known.add(id(one))

    def wrapper_forward(self, original, wrapper, *args, **kwargs):
        """Around the forward pass of a wrapper."""
        if torch.is_grad_enabled():
            synced = getattr(wrapper, "require_backward_grad_sync", True)
            self.since["unsynced"] = None if synced else self.line()
        return super().wrapper_forward(original, wrapper, *args, **kwargs)

    def network_call(self, original, network, *args, **kwargs):
        """Around a call of the network: what flows into its parameters is added up."""
        self.own.watch(network.parameters())
        if torch.is_grad_enabled() and any(network is one for one in self.wrapped):
            self.since["past"] = self.line()
        return super().network_call(original, network, *args, **kwargs)

    def drawn(self):
        """Remember that the script draws random numbers between batch and step."""
        self.lost |= self.taken > 0

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
        for name, parameter in self.parameters(optimizer).items():
            weights[name] = thinned(parameter)
            if parameter.grad is not None:
                given[name] = thinned(parameter.grad)
            if id(parameter) in self.unclipped:
                unclipped[name] = self.unclipped[id(parameter)]
        facts = {
            "given": given,
            "unclipped": unclipped,
            "own": self.own_sums(),
            "wrapped": {self.names.get(one) for one in self.known},
            "since": dict(self.since),
            "losses": self.losses,
            "sums": self.sums,
            "rates": [group["lr"] for group in optimizer.param_groups],
            "kept": self.own.step_begins(self.parameters(optimizer).values()),
            **self.more_facts(),
            "weights": weights,
            "taken": self.taken,
            "lost": self.lost or bool(changed(self.states or {}, generator_states())),
            "line": self.line(),
        }
        self.keep(f"gradients{self.steps}.pt", facts)

    def more_facts(self):
        """Return what else is kept of a step, as a dict."""
        return {}

    def own_sums(self):
        """Return what this rank computed by itself, {name of a parameter: tensor}."""
        found = {}
        for one, total in self.own.sums.items():
            found[self.names.get(one, str(one))] = thinned(total)
        return found

    def step_ends(self, optimizer):
        """After a step: begin anew."""
        super().step_ends(optimizer)
        self.taken = 0
        self.lost = False
        self.unclipped = {}
        self.since = {}
        self.losses = []
        self.sums = []
        self.keep(f"generators{self.steps}.pt", generators())
        if self.steps >= STEPS:
            self.end()


class Merged(Steps):
    """The same on one rank, with the batches of all ranks merged."""

    def next_batch(self, original, reading):
        """In place of the reading of a batch: those of all ranks, while they last."""
        reading.batches += 1
        paths = [source / batch_name(reading) for source in self.sources]
        reading.batches -= 1
        with as_read():
            kept = [torch.load(p, weights_only=False) for p in paths if p.exists()]
        if not kept and reading.batches == 0:
            with as_read():
                return super().next_batch(original, reading)  # they have no such loader
        if not kept:
            self.reading_ends(reading)
            raise StopIteration
        batch = self.together(kept)
        self.batch_came(reading)
        return batch

    def together(self, kept):
        """Return one batch of those kept, (batch, number of samples, generators)."""
        try:
            return merged([one for one, _, _ in kept], [count for _, count, _ in kept])
        except CannotTell as error:
            return self.cannot_tell(str(error))


class Alone(Merged):
    """The work of one of several ranks in one process: its batches, random numbers.

    Each step is taken by the gradients of the several ranks, so weights stay theirs.
    """

    def __init__(self, log, end, folder, sources):
        super().__init__(log, end, folder, sources)
        self.after_pass = []  # what parameters' gradients were, before and after each

    def network_call(self, original, network, *args, **kwargs):
        """Around a call of the network: it begins with the several ranks' weights."""
        path = self.sources[0] / "gradients0.pt"
        if torch.is_grad_enabled() and not self.steps and path.exists():
            self.begin_with(torch.load(path, weights_only=False)["weights"], network)
        return super().network_call(original, network, *args, **kwargs)

    @torch.no_grad()
    def begin_with(self, weights, network):
        """Give a network's parameters the values of the several ranks', by their names.

        Those that are split here, too, stay what they are.
        """
        for name, parameter in network.named_parameters():
            value = weights.get(name.removeprefix("module."))
            is_whole = value is not None and value.numel() == parameter.numel()
            if is_whole and not hasattr(parameter, "placements"):
                parameter.copy_(value.view_as(parameter))

    def optimizer_made(self, original, optimizer, *args, **options):
        """Around the constructor of an optimizer."""
        super().optimizer_made(original, optimizer, *args, **options)
        self.go_on_from(BEGIN)

    def go_on_from(self, name):
        """Set the generators as they were on the rank, where that was kept."""
        path = self.sources[0] / name
        if path.exists():
            set_generators(torch.load(path, weights_only=False))

    def together(self, kept):
        """Return the rank's batch; its generators go on from there."""
        batch, _, states = kept[0]
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
            found[self.names.get(key, str(key))] = thinned(gradient)
        return found

    def more_facts(self):
        """Return the gradients after each pass."""
        return {"after_pass": self.after_pass}

    def step_begins(self, optimizer):
        """Before a step: it gets the gradients and rates of the several ranks."""
        super().step_begins(optimizer)
        path = self.sources[0] / f"gradients{self.steps}.pt"
        if not path.exists():
            self.end()
        kept = torch.load(path, weights_only=False)
        for group, rate in zip(optimizer.param_groups, kept["rates"], strict=False):
            group["lr"] = rate
        given = kept["given"]
        for name, parameter in self.parameters(optimizer).items():
            if name in given and given[name].numel() == parameter.numel():
                parameter.grad = given[name].view_as(parameter).clone()

    def step_ends(self, optimizer):
        """After a step."""
        super().step_ends(optimizer)
        self.go_on_from(f"generators{self.steps}.pt")


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


def merged(parts, counts):
    """Return batches, one for each rank, as one. Raises CannotTell.

    `counts` are the numbers of samples in each, None where it is not known: a list so
    long is one of samples, another list is one of columns.
    """
    first = parts[0]
    if isinstance(first, torch.Tensor):
        return merged_tensors(parts)
    if isinstance(first, dict):
        columns = {}
        for name in first:
            columns[name] = merged([part[name] for part in parts], counts)
        return columns
    if isinstance(first, list | tuple):
        return merged_lists(parts, counts)
    if all(part == first for part in parts):
        return first
    raise CannotTell(f"a batch holds {type(first).__name__}s that differ by rank")


def merged_tensors(parts):
    """Return tensors of several ranks as one. Raises CannotTell."""
    if parts[0].dim() == 0:
        if all(torch.equal(part, parts[0]) for part in parts):
            return parts[0]
        raise CannotTell("a batch holds numbers that differ by rank")
    shapes = {tuple(part.shape[1:]) for part in parts}
    if len(shapes) > 1:
        told = " and ".join(str(list(shape)) for shape in sorted(shapes))
        raise CannotTell(f"the ranks' samples have the shapes {told}")
    return torch.cat(parts)


def merged_lists(parts, counts):
    """Return lists or tuples of several ranks as one. Raises CannotTell."""
    first = parts[0]
    lengths = [len(part) for part in parts]
    columns = all(is_column(one, counts[0]) for one in first)
    if lengths == counts and not columns:
        samples = []
        for part in parts:
            samples += part
        return like(first, samples)
    if len(set(lengths)) > 1:
        raise CannotTell(f"a batch holds lists that are {lengths} long")
    columns = zip(*parts, strict=True)
    return like(first, [merged(list(column), counts) for column in columns])


def is_column(value, count):
    """Return whether a value holds one thing for each of so many samples."""
    if isinstance(value, torch.Tensor):
        return value.dim() > 0 and len(value) == count
    return isinstance(value, list | tuple) and len(value) == count
