"""What several ranks compute in each step, and what one does of the same batches.

The several ranks keep the batches that they take, and before each step the gradients.
The one rank takes those batches merged.
"""

import math

import torch

from onecurve.exact import as_read, in_double, like
from onecurve.exchange import OwnGradients
from onecurve.hooks import Hooks
from onecurve.samples import changed, generator_states

STEPS = 6  # that are compared
NUMBERS = 2_000_000  # of each tensor that are kept, evenly spaced


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
        self.keep(batch_name(reading), (batch, sizes[0] if sizes else None))
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
            "weights": weights,
            "taken": self.taken,
            "lost": self.lost or bool(changed(self.states or {}, generator_states())),
            "line": self.line(),
        }
        self.keep(f"gradients{self.steps}.pt", facts)

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
                return super().next_batch(original, reading)  # they have no such loader
            if not kept:
                self.reading_ends(reading)
                raise StopIteration
            try:
                counts = [count for _, count in kept]
                batch = merged([batch for batch, _ in kept], counts)
            except CannotTell as error:
                self.cannot_tell(str(error))
            self.batch_came(reading)
        return batch


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
