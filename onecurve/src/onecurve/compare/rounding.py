"""Compare tensors within rounding."""

import math

import torch

CLOSE = {torch.float64: 1e-6, torch.float32: 1e-4}  # relative; correct: 1e-14
ROUGH = 2e-2  # for shorter dtypes
FACTOR = 5e-3  # of lengths; CURVED of 1 - cosine: after an exchange in a short dtype
CURVED = 1e-4


def close(ours, theirs):
    """Return whether two tensors are equal within rounding."""
    if ours.shape != theirs.shape:
        return False
    limit = CLOSE.get(ours.dtype, ROUGH)
    return bool((ours - theirs).norm() <= limit * theirs.norm() + 1e-12)


def nearly(ours, theirs):
    """Return whether tensors may be equal after an exchange in a shorter dtype."""
    if ours.shape != theirs.shape:
        return False
    factor, cosine = relation(ours, theirs)
    is_alike = abs(factor - 1) < FACTOR and 1 - cosine < CURVED
    return is_alike or close(ours, theirs)


def apart(ours, theirs):
    """Return the distance of two dicts' tensors, relative to their length."""
    both = [name for name in ours if name in theirs]
    alike = [name for name in both if ours[name].shape == theirs[name].shape]
    off = sum(float((ours[name] - theirs[name]).norm()) ** 2 for name in alike)
    length = sum(float(theirs[name].norm()) ** 2 for name in alike)
    return math.sqrt(off / (length + 1e-300))


def measure(short):
    """Return the comparison for tensors; `short` if exchanged in a shorter dtype."""
    return nearly if short else close


def relation(ours, theirs):
    """Return (ratio of the lengths, cosine of the angle) of two tensors."""
    lengths = float(ours.norm()), float(theirs.norm()) + 1e-300
    product = float(ours.flatten() @ theirs.flatten())
    return lengths[0] / lengths[1], product / (lengths[0] * lengths[1] + 1e-300)


def told(factor, count):
    """Describe a gradient `factor` times as long as expected, on `count` ranks."""
    text = f"same direction, length {factor:.6f}"
    if abs(factor * count - 1) < 1e-3:
        text += f": a factor of {count} (the world size) is missing"
    elif abs(factor / count - 1) < 1e-3:
        text += ": summed, not averaged"
    return text
