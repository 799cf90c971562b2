"""Digest samples and random generators, to compare them between ranks."""

import hashlib
import pickle
import random
import sys
from types import SimpleNamespace
from weakref import WeakValueDictionary

import torch
from torch.utils._pytree import tree_leaves
from torch.utils.data import BatchSampler, Subset, default_convert

from onecurve.watch.events import digest, tensors_in
from onecurve.watch.origins import origin

IDENTITY = 16  # samples that identify a dataset
MOST_CONTENTS = 500  # samples per epoch whose contents are digested
OWN = WeakValueDictionary()  # {name: torch.Generator} that the script has drawn from


def digest_of(value):
    """Return a short digest of a value's repr, the same in all processes."""
    return hashlib.sha256(repr(value).encode()).hexdigest()[:12]


def generator_states():
    """Return digests of the states of Python's, NumPy's and PyTorch's generators."""
    states = {
        "random": digest_of(random.getstate()),
        "torch": digest(torch.get_rng_state()),
    }
    numpy = sys.modules.get("numpy")  # unused unless imported
    if numpy:
        kind, numbers, *rest = numpy.random.get_state()
        states["numpy"] = digest_of((kind, numbers.tobytes(), rest))
    return states


def generators():
    """Return the states of all generators, including the script's, to be restored."""
    numpy = sys.modules.get("numpy")
    return {
        "random": random.getstate(),
        "torch": torch.get_rng_state(),
        "numpy": numpy.random.get_state() if numpy else None,
        "own": {name: one.get_state() for name, one in OWN.items()},
    }


def set_generators(states):
    """Restore the states that `generators` returned."""
    random.setstate(states["random"])
    torch.set_rng_state(states["torch"])
    numpy = sys.modules.get("numpy")
    if numpy and states["numpy"]:
        numpy.random.set_state(states["numpy"])
    set_own(states["own"])


def set_own(states):
    """Restore the states of the script's own generators."""
    for name, state in states.items():
        if name in OWN:
            OWN[name].set_state(state)


def seed_generators(own):
    """Seed the global generators; restore the script's own."""
    random.seed(0)
    torch.default_generator.manual_seed(0)  # torch.manual_seed keeps a traceback
    numpy = sys.modules.get("numpy")
    if numpy:
        numpy.random.seed(0)
    set_own(own)


def changed(before, after):
    """Return the states in `before` of the generators used since."""
    return {name: before[name] for name in before if before[name] != after[name]}


def rows(value):
    """Return a digest per row of the first tensor in a batch that has rows."""
    with torch._C.DisableTorchFunction():
        for tensor in tensors_in(value):
            if tensor.dim() and tensor.numel():
                return [digest(unpadded(row)) for row in tensor]
    return []


def unpadded(row):
    """Return a row of integers without trailing zeros, which may be padding."""
    if row.dim() != 1 or row.is_floating_point():
        return row
    last = row.nonzero()[-1:].flatten()
    return row[: int(last[0]) + 1] if len(last) else row[:1]


def flat(indices):
    """Return a sampler's indices as a flat list."""
    if hasattr(indices, "tolist"):
        indices = indices.tolist()
    if not isinstance(indices, list | tuple):
        return [indices]
    found = []
    for one in indices:
        found += flat(one)
    return found


def share_of(loader, taken):
    """Return facts about a loader's epoch; `taken` is what its sampler gave."""
    dataset = loader.dataset
    indices = flat(taken)
    part = None
    if isinstance(dataset, Subset):
        part = digest_of(sorted(flat(list(dataset.indices))))
    while isinstance(dataset, Subset):
        indices = [dataset.indices[index] for index in indices]
        dataset = dataset.dataset
    indices = flat(indices)
    known = some_contents(dataset)
    read = bool(known) and known == some_contents(dataset)  # else it draws by itself
    identity = digest_of(known) if read else stored_in(dataset)
    if read and len(set(known)) == 1 < len(known):
        identity = None  # such as samples that are drawn, whatever their index
    return {
        "indices": indices,
        "sizes": [len(flat(one)) for one in taken],
        "size": len(dataset),
        "part": part,
        "own_batches": type(loader.batch_sampler) is not BatchSampler,
        "split": origin(loader.dataset),
        "identity": identity,
        "contents": contents(dataset, indices[:MOST_CONTENTS]) if read else [],
    }


def some_contents(dataset):
    """Return `contents` of samples that identify a dataset."""
    step = max(len(dataset) // IDENTITY, 1)
    return contents(dataset, range(0, len(dataset), step))


class Content(pickle.Pickler):
    """Pickles a dataset's content, without random generators or addresses."""

    def persistent_id(self, value):
        if isinstance(value, torch.Tensor):
            return digest(value)
        draws = isinstance(value, random.Random | torch.Generator)
        draws = draws or type(value).__module__.startswith("numpy.random")
        return type(value).__name__ if draws else None


def stored_in(dataset):
    """Return a digest of what a dataset stores, or None if it can't be pickled."""
    found = hashlib.sha256()
    try:
        Content(SimpleNamespace(write=found.update)).dump(dataset)
    except Exception:  # noqa: BLE001, an object may raise anything
        return None
    return found.hexdigest()[:12]


def contents(dataset, indices):
    """Return digests of samples, read with fixed seeds; [] if that fails."""
    found = []
    before = generators()
    try:
        for index in indices:
            seed_generators(before["own"])
            leaves = tree_leaves(default_convert(dataset[index]))
            found.append(digest_of([digest_of_leaf(one) for one in leaves]))
    except Exception:  # noqa: BLE001, a dataset may raise anything
        return []
    finally:
        set_generators(before)
    return found


def digest_of_leaf(value):
    """Return a digest of a tensor, string, number or image. Raises TypeError."""
    if isinstance(value, torch.Tensor):
        return digest(value)
    if hasattr(value, "tobytes"):
        return digest_of(value.tobytes())
    if value is None or isinstance(value, str | bytes | int | float):
        return digest_of(value)
    raise TypeError(f"a sample holds a {type(value).__name__}")  # its repr may differ
