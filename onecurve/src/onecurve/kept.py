"""What a rank keeps for another run: names of files, and how much of a tensor."""

import math

import torch

NUMBERS = 2_400_000  # of each tensor that are kept, evenly spaced: all of a ResNet's
BEGIN = "generators.pt"  # where their states are when an optimizer is made


def in_name(line):
    """Return a line, a number or "file:number", as a part of a file's name."""
    return str(line).replace("/", "_")


def batch_name(reading):
    """Return the name of a file for a batch: the same on each rank."""
    facts = reading.facts
    return f"{in_name(facts['line'])}-{facts['number']}-{reading.batches}.pt"


def cut_name(reading):
    """Return the name of a file that is there where an evaluation was cut short."""
    return f"cut-{in_name(reading.facts['line'])}.pt"


def draw_name(steps, line, number):
    """Return the name of a file for a draw."""
    return f"drawn{steps}-{line}-{number}.pt"


def thinned(tensor):
    """Return at most NUMBERS of the numbers of a tensor; of a DTensor, a collective."""
    tensor = tensor.detach()
    if hasattr(tensor, "full_tensor"):
        tensor = tensor.full_tensor()
    flat = tensor.to_dense().flatten() if tensor.is_sparse else tensor.flatten()
    if flat.is_complex():
        flat = torch.view_as_real(flat.resolve_conj()).flatten()
    return flat[:: math.ceil(max(flat.numel(), 1) / NUMBERS)].clone()


def restored(kept, parameter):
    """Return what `thinned` has kept, in a parameter's shape; None: it is not all."""
    parameter = parameter.detach()
    if parameter.is_complex():
        parts = restored(kept, torch.view_as_real(parameter))
        return None if parts is None else torch.view_as_complex(parts)
    if len(kept) != parameter.numel():
        return None
    return kept.view_as(parameter).clone()
