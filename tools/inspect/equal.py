"""The gradients of several ranks, and those of one that is handed the same batches.

The several ranks write down the batches that they take, what they draw at random for
them, and before each step the gradients; after it, the weights. The one rank takes all
that merged. After each step it takes over the weights of the several: each step is
compared by itself.
"""

import math
from pathlib import Path

import torch
from torch.utils.data import get_worker_info

from tools.inspect.data import named
from tools.inspect.exact import InDouble, as_read, in_double
from tools.inspect.hooks import Hooks
from tools.inspect.merge import CannotTell, merged, merged_numbers
from tools.inspect.samples import changed, generator_states

STEPS = 6  # that are compared
NUMBERS = 2_000_000  # of a step's gradients that are kept, evenly spaced
CLOSE = 1e-6  # relative; right scripts are 1e-14 apart
PARALLEL = 1e-6  # of 1 - cosine


class Steps(Hooks):
    """Writes down batches, gradients and weights below `folder`."""

    def __init__(self, log, end, folder):
        super().__init__(log, end)
        self.folder = Path(folder)
        self.taken_count = 0  # batches, and random numbers, since the latest step
        self.draws = {}  # line -> how many times random numbers were drawn there
        self.lost = False  # whether some of them could not be merged
        self.unclipped = {}  # id of a parameter -> its gradient before clipping

    def next_batch(self, original, reading):
        """Around the reading of a batch."""
        with as_read():
            batch = in_double(super().next_batch(original, reading))
        sizes = reading.loader.sizes
        known = reading.batches <= len(sizes)
        count = sizes[reading.batches - 1] if known else reading.loader.batch_size
        try:
            torch.save((batch, count), self.folder / batch_name(reading))
        except Exception as error:  # noqa: BLE001, whatever a batch makes of it
            self.cannot_tell(f"its batches cannot be saved: {error}")
        return batch

    def batch_came(self, reading, batch):
        """Count a batch."""
        super().batch_came(reading, batch)
        self.taken_count += 1

    def drawn(self, numbers):
        """Keep random numbers that the script draws between batch and step."""
        if numbers.dim() == 0 or InDouble.reading or get_worker_info():
            return numbers
        line = str(self.log.line()).replace("/", "_")
        self.draws[line] = self.draws.get(line, 0) + 1
        self.taken_count += 1
        numbers = self.exchange_numbers(f"draw-{line}-{self.draws[line]}.pt", numbers)
        self.states = generator_states()
        return numbers

    def exchange_numbers(self, name, numbers):
        """Keep random numbers for the run on one rank."""
        torch.save(numbers, self.folder / name)
        return numbers

    def clip(self, original, parameters, *args, **options):
        """Around clipping: it hides a factor, so that what is clipped is kept."""
        if isinstance(parameters, torch.Tensor):
            parameters = [parameters]
        parameters = list(parameters)
        for one in parameters:
            if one.grad is not None:
                self.unclipped[id(one)] = thinned(whole(one.grad))
        return super().clip(original, parameters, *args, **options)

    def before_step(self, optimizer, args, kwargs):
        """Before a step: keep the gradients."""
        super().before_step(optimizer, args, kwargs)
        if self.stepping > 1:
            return
        gradients = {}
        weights = {}
        for name, parameter in self.parameters(optimizer):
            weights[name] = thinned(whole(parameter))
            if parameter.grad is not None:
                gradients[name] = thinned(whole(parameter.grad))
            if id(parameter) in self.unclipped:
                gradients[f"{name} before clipping"] = self.unclipped[id(parameter)]
        facts = {
            "gradients": gradients,
            "weights": weights,
            "taken": self.taken_count,
            "lost": self.lost or bool(changed(self.states or {}, generator_states())),
            "line": self.log.line(),
        }
        torch.save(facts, self.folder / f"gradients{self.steps}.pt")

    def after_step(self, optimizer, args, kwargs):
        """After a step: keep the weights."""
        super().after_step(optimizer, args, kwargs)
        if self.stepping:
            return
        self.taken_count = 0
        self.lost = False
        self.unclipped = {}
        weights = [whole(parameter) for _, parameter in self.parameters(optimizer)]
        self.exchange_weights(optimizer, weights)
        if self.steps >= STEPS:
            self.end()

    def exchange_weights(self, optimizer, weights):
        """Keep the weights for the run on one rank."""
        torch.save(weights, self.folder / f"weights{self.steps}.pt")

    def cannot_tell(self, why):
        """End this process: why is in its log."""
        self.log.write("cannot_tell", why=why)
        self.end()


class Merged(Steps):
    """The same on one rank: batches of all ranks merged, and their weights."""

    def __init__(self, log, end, folder, sources):
        super().__init__(log, end, folder)
        self.sources = [Path(source) for source in sources]

    def theirs(self, name):
        """Return what the ranks have kept under a name: of those that have it."""
        paths = [source / name for source in self.sources]
        with as_read():
            return [torch.load(p, weights_only=False) for p in paths if p.exists()]

    def next_batch(self, original, reading):
        """In place of the reading of a batch: those of all ranks, while they last."""
        reading.batches += 1
        kept = self.theirs(batch_name(reading))
        reading.batches -= 1
        if not kept and reading.batches == 0:
            return super().next_batch(original, reading)  # they have no such loader
        if not kept:
            self.reading_ends(reading, cut=True)
            raise StopIteration
        try:
            with as_read():
                counts = [count for _, count in kept]
                batch = merged([batch for batch, _ in kept], counts)
                self.batch_came(reading, batch)
        except CannotTell as error:
            self.cannot_tell(str(error))
        return batch

    def exchange_numbers(self, name, numbers):
        """Take over what the ranks have drawn."""
        parts = self.theirs(name)
        found = merged_numbers(numbers.detach(), parts) if parts else None
        if found is None:
            self.lost = True
            return numbers
        return numbers.detach().copy_(found)

    def exchange_weights(self, optimizer, weights):
        """Take over the weights that the ranks had after this step."""
        kept = self.theirs(f"weights{self.steps}.pt")
        if not kept:
            return
        with torch.no_grad():
            pairs = zip(self.parameters(optimizer), kept[0], strict=True)
            for (_, parameter), value in pairs:
                local = getattr(parameter, "to_local", None)  # of a DTensor
                own = local() if local else parameter
                own.copy_(value)


def batch_name(reading):
    """Return the name of a file for a batch: the same on each rank."""
    one = named(reading.loader)
    where = str(one["line"]).replace("/", "_")
    return f"{where}-{one['made']}-{one['number']}-{reading.batches}.pt"


def whole(tensor):
    """Return all of a tensor, on the CPU; of a DTensor, a collective."""
    tensor = tensor.detach()
    if hasattr(tensor, "full_tensor"):
        tensor = tensor.full_tensor()
    return tensor.cpu()


def thinned(tensor):
    """Return at most NUMBERS of the numbers of a tensor, evenly spaced."""
    flat = tensor.to_dense().flatten() if tensor.is_sparse else tensor.flatten()
    return flat[:: math.ceil(max(flat.numel(), 1) / NUMBERS)].clone()


def compare(several, one):
    """Compare the steps in two folders.

    Returns (number of steps that were compared, what differs or None, why it cannot be
    told or None). What differs is a dict: line, cosine, ratio, names, of.
    """
    count = 0
    while True:
        paths = [Path(root) / f"gradients{count}.pt" for root in (several, one)]
        if not all(path.exists() for path in paths):
            return count, None, None
        ours, theirs = (torch.load(path, weights_only=False) for path in paths)
        difference = differing(ours["gradients"], theirs["gradients"])
        if difference:
            why = why_not(ours, theirs)
            if why:
                return count, None, why
            return count, difference | {"line": ours["line"]}, None
        count += 1


def why_not(ours, theirs):
    """Return why a step of several ranks and of one cannot be compared, or None."""
    if not ours["taken"]:
        return "it takes its samples without a DataLoader"
    if ours["taken"] != theirs["taken"]:
        numbers = f"{ours['taken']} on several ranks, {theirs['taken']} on one"
        return f"a step takes another number of batches: {numbers}"
    if ours["lost"] or theirs["lost"]:
        return "it draws random numbers between batch and step"
    if differing(ours["weights"], theirs["weights"]):
        return "the ranks begin with other weights than one rank does"
    return None


def differing(ours, theirs):
    """Return how gradients differ, {name: numbers} of several ranks and of one."""
    if set(ours) != set(theirs):
        missing = sorted(set(ours) ^ set(theirs))
        return {"cosine": None, "ratio": None, "names": missing, "of": len(theirs)}
    names = []
    for name in ours:
        if ours[name].shape != theirs[name].shape:
            return {"cosine": None, "ratio": None, "names": [name], "of": len(ours)}
        if (ours[name] - theirs[name]).norm() > CLOSE * theirs[name].norm() + 1e-12:
            names.append(name)
    if not names:
        return None
    a = torch.cat([ours[name] for name in names])
    b = torch.cat([theirs[name] for name in names])
    cosine = float(a @ b / (a.norm() * b.norm() + 1e-300))
    ratio = float(a.norm() / (b.norm() + 1e-300))
    return {"cosine": cosine, "ratio": ratio, "names": names, "of": len(ours)}
