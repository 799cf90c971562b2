"""Keep the random numbers that each rank draws for a step, and combine them.

One process with the samples of several ranks needs their random numbers too: noise,
diffusion steps, drawn batches. Numbers drawn by the same line are concatenated as the
samples are.
"""

from collections import Counter

import torch

from onecurve.feed.stored import draw_name, in_name, order_name

MOST = 200  # draws kept per line and step


class Draws:
    """Names and combines the draws of a step; `sources` are several ranks' folders."""

    def __init__(self, log, sources=()):
        self.log = log
        self.sources = sources
        self.counts = Counter()  # line -> draws since the latest step
        self.joined = False  # whether ranks' draws were joined in the ranks' order

    def next_name(self, steps):
        """Return the next draw's file name, the same on each rank; None after MOST."""
        line = in_name(self.log.line())
        self.counts[line] += 1
        if self.counts[line] > MOST:
            return None
        return draw_name(steps, line, self.counts[line])

    def step_ends(self):
        self.counts.clear()
        self.joined = False

    def together(self, steps, function, shape):
        """Return what `function` drew on the ranks, as one tensor of a shape, or None.

        If all ranks drew the same, returns that.
        """
        name = self.next_name(steps)
        parts = self.kept(name) if name else []
        alike = parts and all(torch.equal(one, parts[0]) for one in parts)
        if alike and parts[0].shape == shape:
            return parts[0]
        own = joined(parts, shape, function is torch.randperm)
        if own is None:
            return None
        path = self.sources[0] / order_name(steps)
        if not path.exists():
            self.joined = True
            return own
        order = torch.load(path)
        at = dimension_of_samples(parts, shape)
        return own.index_select(at, order) if len(order) == shape[at] else own

    def kept(self, name):
        """Return each rank's draw, or [] if a rank has none."""
        paths = [source / name for source in self.sources]
        if not all(path.exists() for path in paths):
            return []
        return [torch.load(path, weights_only=False) for path in paths]


def joined(parts, shape, orders):
    """Return the tensors of several ranks as one of a shape, or None.

    If `orders`, each tensor is an order of a rank's samples; they become one order of
    all samples.
    """
    at = dimension_of_samples(parts, shape)
    if at is None:
        return None
    if orders:
        sizes = [part.shape[at] for part in parts]
        places = torch.arange(shape[at]).split(sizes)
        parts = [own[part] for own, part in zip(places, parts, strict=True)]
    return torch.cat(parts, at)


def dimension_of_samples(parts, shape):
    """Return the only dimension in which tensors add up to a shape, or None."""
    if not parts or any(part.dim() != len(shape) for part in parts):
        return None
    found = []
    for at, size in enumerate(shape):
        sizes = [part.shape[at] for part in parts]
        if any(one != size for one in sizes):
            found.append(at)
            if sum(sizes) != size:
                return None
    return found[0] if len(found) == 1 else None
