"""Random numbers that a script draws for a step: kept by each rank, then put together.

One process that has the samples of several ranks needs their numbers, too: noise, the
steps of a diffusion, a batch that is drawn. What the ranks drew in the same line is put
one behind the other, as their samples are; or woven, as those of [rank::world_size].
"""

from collections import Counter

import torch

from onecurve.kept import draw_name

MOST = 200  # draws of a line in a step that are kept


class Draws:
    """Which draw of a step comes next; `sources` are the folders of several ranks."""

    def __init__(self, log, sources=()):
        self.log = log
        self.sources = sources
        self.counts = Counter()  # line -> draws since the latest step
        self.in_turn = False  # whether one process draws as the ranks would in turn
        self.woven = False  # whether the ranks' samples are every W-th of one process's

    def next_name(self, steps):
        """Return the name of a file for the next draw, the same on each rank; or None.

        So it is for the many draws of a script that plays a game, say.
        """
        line = self.line()
        self.counts[line] += 1
        if self.counts[line] > MOST:
            return None
        return draw_name(steps, line, self.counts[line])

    def line(self):
        """Return where the script is, for the name of a file."""
        return str(self.log.line()).replace("/", "_")

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
        if alike and parts[0].shape == shape:
            return parts[0]
        whole = joined(parts, shape, self.woven, function is torch.randperm)
        if whole is not None:
            return whole
        part = None if batch else self.part_in_turn(steps)
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

    def part_in_turn(self, steps):
        """Return what one rank drew, after all of the ranks before it; or None."""
        line = self.line()
        each = len(list(self.sources[0].glob(draw_name(steps, line, "*"))))
        if not each:
            return None
        rank, number = divmod(self.counts[line] - 1, each)
        parts = self.kept(draw_name(steps, line, number + 1))
        return parts[rank] if rank < len(parts) else None


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
