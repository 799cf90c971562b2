"""Recompute on one rank, with the batches of all ranks merged."""

import contextlib

import torch

from onecurve.feed.own_batches import OwnBatches
from onecurve.feed.stored import batch_name, cut_name
from onecurve.set_up.float64 import as_read, in_double, like
from onecurve.watch.events import digest, tensors_in
from onecurve.watch.samples import generator_states


class CannotTell(Exception):
    """Raised if batches can't be merged; the message says why."""


class MergedBatches(OwnBatches):
    """Gives one process merged batches and the ranks' learning rates."""

    def __init__(self, script, folder, sources):
        super().__init__(script, folder, sources)
        self.own_rates = []  # learning rates of the optimizer in the current step
        self.theirs = None  # the ranks' record of the current step, if they took it

    def keep(self, name, value):
        """Keep only what is compared, because no run copies this one."""
        if name.startswith("gradients"):
            super().keep(name, value)

    def may_cut(self, reading):
        """Return whether an epoch may end early, as all but uncut evaluations do."""
        cuts = [source / cut_name(reading) for source in self.sources]
        return reading.grad or any(one.exists() for one in cuts)

    def next_batch(self, read, reading):
        """Return the ranks' next batches, merged, while they last.

        In uncut evaluations, this process reads its own.
        """
        if not self.may_cut(reading):
            return super().next_batch(read, reading)
        paths = [source / batch_name(reading) for source in self.sources]
        with as_read():
            kept = [torch.load(p, weights_only=False) for p in paths if p.exists()]
            if not kept and reading.batches == 0:
                return super().next_batch(read, reading)  # only this process has it
        if not kept:
            raise StopIteration
        return self.together(kept, reading)

    def step_begins(self, optimizer):
        """Before a step: use the ranks' learning rates, so that weights match."""
        self.own_rates = [group["lr"] for group in optimizer.param_groups]
        self.theirs = self.record()
        if self.theirs:
            set_rates(optimizer, self.theirs["rates"])

    def record(self):
        """Return the ranks' record of the current step, or None."""
        path = self.sources[0] / f"gradients{self.script.steps}.pt"
        return torch.load(path, weights_only=False) if path.exists() else None

    def step_returns(self, optimizer):
        """After a step: restore the optimizer's own rates for its schedule."""
        set_rates(optimizer, self.own_rates)

    def draw_for_training(self, function, *args, **options):
        """Draw random numbers for training: all ranks', if known."""
        own = function(*args, **options)
        steps = self.script.steps
        ranks = self.draws.together(steps, function, own.shape)
        if ranks is None:
            self.drew()
        else:
            with torch.no_grad():
                own.copy_(ranks)  # the draw may be in place
        self.script.states = generator_states()
        return own

    def together(self, kept, reading):
        """Merge batches, or collate their samples if they can't be merged."""
        batches, counts, _, samples = zip(*kept, strict=True)
        try:
            return in_double(merged(batches, list(counts)))
        except CannotTell as error:
            batch = collated(reading._collate_fn, batches, samples)
            if batch is None:
                return self.script.cannot_tell(str(error))
            if shapes_of(batch) != shapes_of(batches[0]):
                self.log.write("padded")
            return in_double(batch)


def shapes_of(batch):
    """Return the shapes of a batch's samples."""
    return [tensor.shape[1:] for tensor in tensors_in(batch)]


def set_rates(optimizer, rates):
    """Set an optimizer's learning rates if it has as many groups."""
    groups = optimizer.param_groups
    if len(groups) == len(rates):
        for group, rate in zip(groups, rates, strict=True):
            group["lr"] = rate


def collated(collate, batches, samples):
    """Collate all samples; return None if they don't reproduce each rank's batch."""
    together = []
    for batch, own in zip(batches, samples, strict=True):
        if own is None:
            return None
        with as_read():
            again = collate(own)
        digests = [digest(one) for one in tensors_in(again)]
        if digests != [digest(one) for one in tensors_in(batch)]:
            return None
        together += own
    with as_read():
        return collate(together)


def merged(parts, counts):
    """Merge the ranks' batches into one. Raises CannotTell.

    `counts` are batch sizes, or None; a list that long contains samples, not columns.
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
    with contextlib.suppress(Exception):  # == may raise anything
        if all(part == first for part in parts):
            return first
    raise CannotTell(f"a batch contains {type(first).__name__}s that differ by rank")


def merged_tensors(parts):
    """Concatenate the ranks' tensors. Raises CannotTell."""
    if parts[0].dim() == 0:
        if all(torch.equal(part, parts[0]) for part in parts):
            return parts[0]
        raise CannotTell("a batch contains numbers that differ by rank")
    shapes = {tuple(part.shape[1:]) for part in parts}
    if len(shapes) > 1:
        told = " and ".join(str(list(shape)) for shape in sorted(shapes))
        raise CannotTell(f"samples have different shapes on the ranks: {told}")
    return torch.cat(parts)


def merged_lists(parts, counts):
    """Merge the ranks' lists or tuples. Raises CannotTell."""
    first = parts[0]
    lengths = [len(part) for part in parts]
    columns = all(is_column(one, counts[0]) for one in first)
    if lengths == counts and not columns:
        samples = []
        for part in parts:
            samples += part
        return like(first, samples)
    if len(set(lengths)) > 1:
        raise CannotTell(f"a batch contains lists of lengths {lengths}")
    columns = zip(*parts, strict=True)
    return like(first, [merged(list(column), counts) for column in columns])


def is_column(value, count):
    """Return whether a value has one entry per sample."""
    if isinstance(value, torch.Tensor):
        return value.dim() > 0 and len(value) == count
    return isinstance(value, list | tuple) and len(value) == count
