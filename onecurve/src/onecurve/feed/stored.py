"""Name the files that a rank keeps for another run, and reduce large tensors."""

import math

import torch

LARGE = 120_000  # numbers of a tensor that isn't kept whole
KEPT = 40_000  # of its numbers, evenly spaced
REPLAYED = 12_000_000  # numbers of a model that is replayed in all steps: a ResNet's
WEIGHTS = "weights.pt"  # before the first step, whole
WHOLE = "whole{}.pt"  # the gradients of a step
BEGIN = "generators.pt"  # the states when an optimizer is created


def in_name(line):
    """Return a line, as a number or "file:number", for use in a file name."""
    return str(line).replace("/", "_")


def batch_name(reading):
    """Return the file name for the next batch, the same on each rank."""
    facts = reading.facts
    return f"{in_name(facts['line'])}-{facts['number']}-{reading.batches + 1}.pt"


def cut_name(reading):
    """Return the name of a file that marks a shortened evaluation."""
    return f"cut-{in_name(reading.facts['line'])}.pt"


def draw_name(steps, line, number):
    return f"drawn{steps}-{line}-{number}.pt"


def order_name(steps):
    return f"order{steps}.pt"


def thinned(tensor):
    """Return all or KEPT of a tensor's numbers."""
    flat = whole(tensor).flatten()
    if flat.is_complex():
        flat = torch.view_as_real(flat.resolve_conj()).flatten()
    count = flat.numel()
    return flat[:: math.ceil(count / KEPT) if count > LARGE else 1].clone()


def whole(tensor):
    """Return a tensor, dense and detached; collective for a DTensor."""
    tensor = tensor.detach()
    if hasattr(tensor, "full_tensor"):
        tensor = tensor.full_tensor()
    return tensor.to_dense()
