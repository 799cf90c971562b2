"""Name the files that a rank keeps for another run, and reduce large tensors."""

import math

import torch

NUMBERS = 2_400_000  # kept of each tensor, evenly spaced: all of a ResNet's
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


def thinned(tensor):
    """Return at most NUMBERS of a tensor's numbers; collective for a DTensor."""
    tensor = tensor.detach()
    if hasattr(tensor, "full_tensor"):
        tensor = tensor.full_tensor()
    flat = tensor.to_dense().flatten() if tensor.is_sparse else tensor.flatten()
    if flat.is_complex():
        flat = torch.view_as_real(flat.resolve_conj()).flatten()
    return flat[:: math.ceil(max(flat.numel(), 1) / NUMBERS)].clone()


def restored(kept, parameter):
    """Return what `thinned` kept in a parameter's shape, or None if incomplete."""
    parameter = parameter.detach()
    if parameter.is_complex():
        parts = restored(kept, torch.view_as_real(parameter))
        return None if parts is None else torch.view_as_complex(parts)
    if len(kept) != parameter.numel():
        return None
    return kept.view_as(parameter).clone()
