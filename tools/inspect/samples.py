"""Digests of samples and of random generators, to be compared between ranks."""

import hashlib
import random

import numpy
import torch
from torch.utils.data import Subset

from tools.watch.events import digest


def digest_of(*values):
    """Return a short digest of values by their texts; the same in all processes."""
    return hashlib.sha256(repr(values).encode()).hexdigest()[:12]


def generator_states():
    """Return a digest of the state of each of Python's, NumPy's and PyTorch's."""
    kind, numbers, *rest = numpy.random.get_state()
    return {
        "random": digest_of(random.getstate()),
        "numpy": digest_of(kind, numbers.tobytes(), rest),
        "torch": digest(torch.get_rng_state()),
    }


def changed(before, after):
    """Return the states in `before` of the generators that were drawn from since."""
    return {name: before[name] for name in before if before[name] != after[name]}


def rows_of(value, found):
    """Add the digests of each tensor's rows in a batch to `found`, a list of lists."""
    if isinstance(value, torch.Tensor):
        if value.dim() and value.numel():
            found.append([digest(row) for row in value])
    elif isinstance(value, dict):
        for one in value.values():
            rows_of(one, found)
    elif isinstance(value, list | tuple):
        for one in value:
            rows_of(one, found)


def rows(value):
    """Return a digest of each row of the first tensor in a batch that has rows."""
    found = []
    rows_of(value, found)
    return found[0] if found else []


def base_of(dataset, indices):
    """Return the data set that subsets are of, and the indices in it."""
    while isinstance(dataset, Subset):
        indices = [dataset.indices[index] for index in indices]
        dataset = dataset.dataset
    return dataset, [int(index) for index in indices]


def flat(indices):
    """Return the integers in what a sampler gives, however deep."""
    if getattr(indices, "ndim", None) == 0:
        return [int(indices)]
    if isinstance(indices, list | tuple | torch.Tensor | numpy.ndarray):
        return [number for one in indices for number in flat(one)]
    return [int(indices)]


def identity(dataset):
    """Return a digest of some samples of a map-style data set, None where it fails.

    The generators are left as they were.
    """
    before = random.getstate(), numpy.random.get_state(), torch.get_rng_state()
    random.seed(0)
    numpy.random.seed(0)
    torch.manual_seed(0)
    try:
        found = []
        for index in sorted({0, len(dataset) // 2, len(dataset) - 1}):
            rows_of(torch.utils.data.default_convert(dataset[index]), found)
        return digest_of(found)
    except Exception:  # noqa: BLE001, whatever a data set makes of it
        return None
    finally:
        random.setstate(before[0])
        numpy.random.set_state(before[1])
        torch.set_rng_state(before[2])
