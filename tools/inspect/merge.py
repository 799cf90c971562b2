"""Batches and random numbers of several ranks, merged into those of one."""

import torch


class CannotTell(Exception):
    """What one rank would compute of the same samples is not known: says why."""


def merged(parts, counts):
    """Return batches, one for each rank, as one. Raises CannotTell.

    `counts` are the numbers of samples in each, None where it is not known: a list so
    long is one of samples, another list is one of columns.
    """
    first = parts[0]
    if isinstance(first, torch.Tensor):
        return merged_tensors(parts)
    if isinstance(first, dict):
        return {name: merged([one[name] for one in parts], counts) for name in first}
    if isinstance(first, list | tuple):
        return merged_lists(parts, counts)
    if all(part == first for part in parts):
        return first
    raise CannotTell(f"a batch holds {type(first).__name__}s that differ by rank")


def merged_lists(parts, counts):
    """Return lists or tuples of several ranks as one. Raises CannotTell."""
    kind = type(parts[0])
    lengths = [len(part) for part in parts]
    columns = all(is_column(one, counts[0]) for one in parts[0])
    if lengths == counts and not columns:
        return kind(one for part in parts for one in part)
    if len(set(lengths)) > 1:
        raise CannotTell(f"a batch holds lists that are {lengths} long")
    found = [merged(list(each), counts) for each in zip(*parts, strict=True)]
    return kind(*found) if hasattr(kind, "_fields") else kind(found)


def is_column(value, count):
    """Return whether a value holds one thing for each of so many samples."""
    if isinstance(value, torch.Tensor):
        return value.dim() > 0 and len(value) == count
    return isinstance(value, list | tuple) and len(value) == count


def merged_tensors(parts):
    """Return tensors of several ranks as one. Raises CannotTell."""
    shapes = {tuple(part.shape[1:]) for part in parts}
    if parts[0].dim() == 0:
        if all(bool(part == parts[0]) for part in parts):
            return parts[0]
        raise CannotTell("a batch holds numbers that differ by rank")
    if len(shapes) > 1:
        told = " and ".join(str(list(shape)) for shape in sorted(shapes))
        raise CannotTell(f"the ranks' samples have the shapes {told}")
    return torch.cat(parts)


def merged_numbers(own, parts):
    """Return what one rank draws, `own`, made of what the ranks drew; None: it fails.

    Where each drew as much as the one, and the same, that is it.
    """
    if (
        all(torch.equal(part, parts[0]) for part in parts)
        and own.shape == parts[0].shape
    ):
        return parts[0]
    if sum(len(part) for part in parts) != len(own):
        return None
    if {tuple(part.shape[1:]) for part in parts} != {tuple(own.shape[1:])}:
        return None
    return torch.cat(parts).to(own.dtype)
