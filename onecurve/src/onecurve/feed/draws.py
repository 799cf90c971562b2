"""Keep the random numbers that each rank draws for a step, and combine them.

One process with the samples of several ranks needs their random numbers too: noise,
diffusion steps, drawn batches. Numbers drawn by the same line are concatenated as the
samples are.
"""

from collections import Counter
from itertools import takewhile

import torch

from onecurve.feed.stored import draw_name, in_name

MOST = 200  # draws kept per line and step


class Draws:
    """Names and combines the draws of a step; `sources` are several ranks' folders."""

    def __init__(self, log, sources=()):
        self.log = log
        self.sources = sources
        self.counts = Counter()  # line -> draws since the latest step
        self.all = Counter()  # line -> all draws
        self.in_turn = False  # whether one process takes each rank's turn

    def next_name(self, steps):
        """Return the next draw's file name, the same on each rank; None after MOST."""
        line = self.line()
        self.counts[line] += 1
        self.all[line] += 1
        if self.counts[line] > MOST:
            return None
        return draw_name(steps, line, self.counts[line])

    def line(self):
        """Return the script's line, for a file name."""
        return in_name(self.log.line())

    def step_ends(self):
        self.counts.clear()
        self.in_turn = False

    def together(self, steps, function, shape, batch):
        """Return what the ranks drew, as one tensor of a shape, or None.

        `function` draws now; `batch` is whether it may draw for a loader's samples. If
        all ranks drew the same, returns that.
        """
        name = self.next_name(steps)
        if not name:
            return None
        parts = self.kept(name)
        alike = parts and all(torch.equal(one, parts[0]) for one in parts)
        as_many = bool(parts) and all(one.shape == shape for one in parts)
        if alike and as_many:
            return parts[0]
        whole = joined(parts, shape, function is torch.randperm)
        if whole is not None:
            return whole
        part = None if batch else self.part_in_turn()
        if part is not None and part.shape == shape:
            self.in_turn = True
            return part
        return None

    def kept(self, name):
        """Return each rank's draw, or [] if a rank has none."""
        paths = [source / name for source in self.sources]
        if not all(path.exists() for path in paths):
            return []
        return [torch.load(path, weights_only=False) for path in paths]

    def part_in_turn(self):
        """Return one rank's draw if one process takes each rank's turn, or None.

        In each step, and before the first if batches are drawn ahead, the process then
        draws as often as all ranks together.
        """
        line = self.line()
        first, second = [self.names(step, line) for step in (0, 1)]
        each = len(second or first)
        if not each:
            return None
        turns, number = divmod(self.all[line] - 1, each)
        step, rank = divmod(turns, len(self.sources))
        number += step * each
        if number < len(first):
            name = first[number]
        else:
            later, number = divmod(number - len(first), each)
            name = draw_name(1 + later, line, 1 + number)
        parts = self.kept(name)
        return parts[rank] if parts else None

    def names(self, step, line):
        """Return the file names of rank 0's draws in a step, in order."""
        names = [draw_name(step, line, number) for number in range(1, MOST + 1)]
        return list(takewhile(lambda name: (self.sources[0] / name).exists(), names))


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
