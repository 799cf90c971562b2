"""What one rank computes of the batches of several ranks, merged."""

import contextlib

import torch

from onecurve.equal import Steps
from onecurve.events import digest, tensors_in
from onecurve.exact import as_read, in_double, like
from onecurve.kept import batch_name, cut_name
from onecurve.samples import generator_states


class CannotTell(Exception):
    """What one rank would compute of the same samples is not known: says why."""


class Merged(Steps):
    """The same on one rank, with the batches of all ranks merged.

    Each step is taken by the learning rates of the several ranks, so weights stay
    theirs, also where rates depend on the number of ranks.
    """

    def __init__(self, log, end, folder, sources):
        super().__init__(log, end, folder, sources)
        self.own_rates = []  # of the optimizer that takes a step now
        self.theirs = None  # what the several ranks had in it, if they took it

    def reads_own(self, reading):
        """Return whether this process reads an evaluation by its own loader.

        So its numbers are one process's, unless the evaluation of a rank was cut.
        """
        cuts = [source / cut_name(reading) for source in self.sources]
        return not reading.grad and not any(one.exists() for one in cuts)

    def enough(self, reading):
        """Return whether an epoch has gone on for long enough."""
        return not self.reads_own(reading) and super().enough(reading)

    def next_batch(self, original, reading):
        """In place of the reading of a batch: those of all ranks, while they last."""
        if self.reads_own(reading):
            return super().next_batch(original, reading)
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
        batch = self.together(kept, reading)
        self.batch_came(reading)
        return batch

    def step_begins(self, optimizer):
        """Before a step: for it alone, the optimizer gets the several ranks' rates."""
        super().step_begins(optimizer)
        self.own_rates = [group["lr"] for group in optimizer.param_groups]
        path = self.sources[0] / f"gradients{self.steps}.pt"
        self.theirs = torch.load(path, weights_only=False) if path.exists() else None
        if self.theirs:
            set_rates(optimizer, self.theirs["rates"])

    def step_ends(self, optimizer):
        """After a step: it has its own rates again, by which a schedule goes on."""
        set_rates(optimizer, self.own_rates)
        super().step_ends(optimizer)

    def draw_for_training(self, function, *args, **options):
        """Draw random numbers for the training: those of all ranks."""
        own = function(*args, **options)
        ranks = self.draws.together(self.steps, function, own.shape, self.taken)
        if ranks is None:
            self.drawn()
        else:
            with torch.no_grad():
                own.copy_(ranks)  # it may be drawn in place
        self.states = generator_states()
        return own

    def together(self, kept, reading):
        """Return one batch of those kept, each with its size, generators and samples.

        Where they cannot be merged, the script's own function collates all samples.
        """
        batches, counts, _, samples = zip(*kept, strict=True)
        try:
            return merged(batches, counts)
        except CannotTell as error:
            batch = collated(reading._collate_fn, batches, samples)
            return self.cannot_tell(str(error)) if batch is None else batch


def set_rates(optimizer, rates):
    """Set the learning rates of an optimizer's groups, where there are so many."""
    groups = optimizer.param_groups
    if len(groups) == len(rates):
        for group, rate in zip(groups, rates, strict=True):
            group["lr"] = rate


def collated(collate, batches, samples):
    """Return the batch of all ranks' samples, as a function collates them, or None.

    So it is where the samples are not kept, or do not give the same batch again: it
    draws random numbers, say.
    """
    together = []
    for batch, own in zip(batches, samples, strict=True):
        if own is None:
            return None
        with as_read():
            again = in_double(collate(own))
        digests = [digest(one) for one in tensors_in(again)]
        if digests != [digest(one) for one in tensors_in(batch)]:
            return None
        together += own
    with as_read():
        return in_double(collate(together))


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
    with contextlib.suppress(Exception):  # whatever a class makes of ==
        if all(part == first for part in parts):
            return first
    raise CannotTell(f"a batch contains {type(first).__name__}s that differ by rank")


def merged_tensors(parts):
    """Return tensors of several ranks as one. Raises CannotTell."""
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
        raise CannotTell(f"a batch contains lists of lengths {lengths}")
    columns = zip(*parts, strict=True)
    return like(first, [merged(list(column), counts) for column in columns])


def is_column(value, count):
    """Return whether a value holds one thing for each of so many samples."""
    if isinstance(value, torch.Tensor):
        return value.dim() > 0 and len(value) == count
    return isinstance(value, list | tuple) and len(value) == count
