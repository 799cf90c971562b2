"""The gradients of several ranks, and those of one that is handed the same batches.

The several ranks write down the batches that they take, and before each step the
gradients; after it, the weights. The one rank takes the ranks' batches merged. After
each step it takes over the weights of the several: each step is compared by itself.
"""

import math
from pathlib import Path

import torch

from tools.inspect.exact import in_double
from tools.inspect.hooks import Hooks, generator_states, named

STEPS = 6  # that are compared
NUMBERS = 2_000_000  # of a step's gradients that are kept, evenly spaced
CLOSE = 1e-6  # relative; right scripts are 1e-14 apart
PARALLEL = 1e-6  # of 1 - cosine


class Steps(Hooks):
    """Writes down batches, gradients and weights below `folder`."""

    def __init__(self, log, end, folder):
        super().__init__(log, end)
        self.folder = Path(folder)
        self.states = None  # of the generators, when the latest batch had come

    def install(self):
        super().install()

    def next_batch(self, original, reading):
        """Around the reading of a batch."""
        batch = in_double(super().next_batch(original, reading))
        name = batch_name(reading)
        torch.save(batch, self.folder / name)
        self.states = generator_states()
        return batch

    def before_step(self, optimizer, args, kwargs):
        """Before a step: keep the gradients."""
        super().before_step(optimizer, args, kwargs)
        if self.stepping > 1:
            return
        gradients = {}
        for name, parameter in self.parameters(optimizer):
            if parameter.grad is not None:
                gradients[name] = thinned(whole(parameter.grad))
        drawn = self.states is not None and self.states != generator_states()
        facts = {
            "gradients": gradients,
            "drawn": drawn,
            "batch": self.states is not None,
        }
        facts["line"] = self.log.line()
        torch.save(facts, self.folder / f"gradients{self.steps}.pt")

    def after_step(self, optimizer, args, kwargs):
        """After a step: keep the weights."""
        super().after_step(optimizer, args, kwargs)
        if self.stepping:
            return
        weights = [whole(parameter) for _, parameter in self.parameters(optimizer)]
        self.exchange_weights(optimizer, weights)
        if self.steps >= STEPS:
            self.end()

    def exchange_weights(self, optimizer, weights):
        """Keep the weights for the run on one rank."""
        torch.save(weights, self.folder / f"weights{self.steps}.pt")


class Merged(Steps):
    """The same on one rank: batches of all ranks merged, and their weights."""

    def __init__(self, log, end, folder, sources):
        super().__init__(log, end, folder)
        self.sources = [Path(source) for source in sources]

    def next_batch(self, original, reading):
        """Around the reading of a batch: those of all ranks, where they have some."""
        batch = super().next_batch(original, reading)
        paths = [source / batch_name(reading) for source in self.sources]
        if all(path.exists() for path in paths):
            parts = [torch.load(path, weights_only=False) for path in paths]
            batch = merged(parts)
        return batch

    def exchange_weights(self, optimizer, weights):
        """Take over the weights that the ranks had after this step."""
        path = self.sources[0] / f"weights{self.steps}.pt"
        if not path.exists():
            return
        theirs = torch.load(path)
        with torch.no_grad():
            for (_, parameter), value in zip(
                self.parameters(optimizer), theirs, strict=True
            ):
                own = (
                    parameter.to_local()
                    if hasattr(parameter, "to_local")
                    else parameter
                )
                own.copy_(value)


class CannotMerge(Exception):
    """Batches of several ranks are no batch of one: says why."""


def batch_name(reading):
    """Return the name of a file for a batch: the same on each rank."""
    one = named(reading.loader)
    where = str(one["line"]).replace("/", "_")
    return f"{where}-{one['made']}-{one['number']}-{reading.batches}.pt"


def merged(parts):
    """Return batches, one for each rank, as one. Raises CannotMerge."""
    first = parts[0]
    if isinstance(first, torch.Tensor):
        return merged_tensors(parts)
    if isinstance(first, dict):
        return {name: merged([part[name] for part in parts]) for name in first}
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(merged(list(each)) for each in zip(*parts, strict=True)))
    if isinstance(first, list | tuple):
        same = len({len(part) for part in parts}) == 1
        if same and all(
            isinstance(one, torch.Tensor | dict | list | tuple) for one in first
        ):
            return type(first)(merged(list(each)) for each in zip(*parts, strict=True))
        return type(first)(one for part in parts for one in part)
    if all(part == first for part in parts):
        return first
    raise CannotMerge(f"a batch holds {type(first).__name__}s that differ by rank")


def merged_tensors(parts):
    """Return tensors of several ranks as one. Raises CannotMerge."""
    shapes = {tuple(part.shape[1:]) for part in parts}
    if parts[0].dim() == 0:
        if all(bool(part == parts[0]) for part in parts):
            return parts[0]
        raise CannotMerge("a batch holds numbers that differ by rank")
    if len(shapes) > 1:
        told = " and ".join(str(list(shape)) for shape in sorted(shapes))
        raise CannotMerge(f"the ranks' samples have the shapes {told}")
    return torch.cat(parts)


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
    told or None). What differs is a dict: step, line, cosine, ratio, names.
    """
    count = 0
    while True:
        paths = [Path(root) / f"gradients{count}.pt" for root in (several, one)]
        if not all(path.exists() for path in paths):
            return count, None, None
        ours, theirs = (torch.load(path, weights_only=False) for path in paths)
        difference = differing(ours["gradients"], theirs["gradients"])
        if difference:
            difference |= {"step": count + 1, "line": ours["line"]}
            if not ours["batch"]:
                return count, None, "it takes its samples without a DataLoader"
            if ours["drawn"]:
                return count, None, "it draws random numbers between batch and step"
            return count + 1, difference, None
        count += 1


def differing(ours, theirs):
    """Return how gradients differ, {name: numbers} of several ranks and of one."""
    if set(ours) != set(theirs):
        missing = sorted(set(ours) ^ set(theirs))
        return {"cosine": None, "ratio": None, "names": missing, "of": len(theirs)}
    names = []
    for name in ours:
        scale = theirs[name].norm() + 1e-300
        if (ours[name] - theirs[name]).norm() > CLOSE * scale + 1e-12:
            names.append(name)
    if not names:
        return None
    a = torch.cat([ours[name] for name in names])
    b = torch.cat([theirs[name] for name in names])
    cosine = float(a @ b / (a.norm() * b.norm() + 1e-300))
    ratio = float(a.norm() / (b.norm() + 1e-300))
    return {"cosine": cosine, "ratio": ratio, "names": names, "of": len(ours)}
