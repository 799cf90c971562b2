"""Random numbers that a script draws for a step: kept by each rank, then put together.

One process that has the samples of several ranks needs their numbers, too: noise, the
steps of a diffusion, a batch that is drawn. What the ranks drew in the same line is put
one behind the other, as their samples are; or woven, as those of [rank::world_size].
"""

from collections import Counter

import torch

from onecurve.kept import draw_name, in_name

MOST = 200  # draws of a line in a step that are kept


class Draws:
    """Which draw of a step comes next; `sources` are the folders of several ranks."""

    def __init__(self, log, sources=()):
        self.log = log
        self.sources = sources
        self.counts = Counter()  # line -> draws since the latest step
        self.all = Counter()  # line -> draws
        self.in_turn = False  # whether one process draws as the ranks would in turn
        self.woven = False  # whether the ranks' samples are every W-th of one process's

    def next_name(self, steps):
        """Return the name of a file for the next draw, the same on each rank; or None.

        So it is for the many draws of a script that plays a game, say.
        """
        line = self.line()
        self.counts[line] += 1
        self.all[line] += 1
        if self.counts[line] > MOST:
            return None
        return draw_name(steps, line, self.counts[line])

    def line(self):
        """Return where the script is, for the name of a file."""
        return in_name(self.log.line())

    def step_ends(self):
        """After a step: count anew."""
        self.counts.clear()
        self.in_turn = False

    def together(self, steps, function, shape, batch):
        """Return what the ranks drew, as one tensor of a shape, or None.

        `function` is what draws now, `batch` whether it may be for the samples of a
        loader's. Where each rank drew the same, it is that.
        """
        name = self.next_name(steps)
        if not name:
            return None
        parts = self.kept(name)
        alike = parts and all(torch.equal(one, parts[0]) for one in parts)
        as_many = bool(parts) and all(one.shape == shape for one in parts)
        if alike and as_many:
            return parts[0]
        if as_many and function is torch.randperm:
            self.log.write("own_orders", line=self.log.line())
        whole = joined(parts, shape, self.woven, function is torch.randperm)
        if whole is not None:
            return whole
        part = None if batch else self.part_in_turn()
        if part is not None and part.shape == shape:
            self.in_turn = True
            return part
        return None

    def kept(self, name):
        """Return what each rank drew, [] where one did not."""
        paths = [source / name for source in self.sources]
        if not all(path.exists() for path in paths):
            return []
        return [torch.load(path, weights_only=False) for path in paths]

    def part_in_turn(self):
        """Return what one rank drew, where one process takes each rank's turn; or None.

        In a step it draws as often as all ranks together; and the first time before
        the first step, where batches are drawn ahead.
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
        """Return the names of the files for what rank 0 drew in a step, in order."""
        names = []
        for number in range(1, MOST + 1):
            name = draw_name(step, line, number)
            if not (self.sources[0] / name).exists():
                break
            names.append(name)
        return names


def joined(parts, shape, woven, orders):
    """Return the tensors of several ranks as one of a shape, or None.

    Where the ranks' samples are `woven`, the first of each comes before the second of
    any. What `orders` the samples of each rank becomes an order of all.
    """
    at = dimension_of_samples(parts, shape)
    if at is None:
        return None
    sizes = [part.shape[at] for part in parts]
    places = torch.arange(shape[at]).split(sizes)
    if woven:
        places = [
            torch.arange(rank, shape[at], len(parts)) for rank in range(len(parts))
        ]
    if [len(one) for one in places] != sizes:
        return None
    if orders:
        parts = [own[part] for own, part in zip(places, parts, strict=True)]
    return torch.cat(parts, at).index_select(at, torch.cat([*places]).argsort())


def dimension_of_samples(parts, shape):
    """Return in which dimension alone tensors add up to a shape; None: in none."""
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
