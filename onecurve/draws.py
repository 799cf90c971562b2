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

    They differ in one of its sizes, that of the samples. Where these are `woven`, the
    first is followed by the other ranks' first. What `orders` them does so with all.
    """
    fits = bool(parts) and all(part.dim() == len(shape) for part in parts)
    sizes = [part.shape for part in parts]
    apart = [at for at, size in enumerate(shape) if fits and size != sizes[0][at]]
    if len(apart) != 1:
        return None
    at = apart[0]
    others = [[*size[:at], *size[at + 1 :]] for size in sizes]
    if any(one != [*shape[:at], *shape[at + 1 :]] for one in others):
        return None
    if sum(size[at] for size in sizes) != shape[at]:
        return None
    if orders:
        parts = orders_of_all(parts)
    whole = torch.cat(parts, at)
    if woven:
        places = []
        for rank in range(len(parts)):
            places.append(torch.arange(rank, shape[at], len(parts)))
        whole = whole.index_select(at, torch.cat(places).argsort())
    return whole


def orders_of_all(parts):
    """Return orders of the ranks' samples as those of all, which come one by one."""
    before = 0
    later = []
    for part in parts:
        later.append(part + before)
        before += len(part)
    return later
