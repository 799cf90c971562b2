"""Record the random orders that a script draws."""

import sys
from functools import partial

import torch
from torch.utils.data import RandomSampler

from onecurve.set_up.replace import replace
from onecurve.watch.events import digest
from onecurve.watch.samples import generator_states

MOST = 500  # that are recorded


class Orders:
    """Writes the event `order`; seeds of global generators are in `seeded`."""

    def __init__(self, log):
        self.log = log
        self.left = MOST

    def install(self):
        for owner in "torch", "torch.utils.data.dataset":
            replace(f"{owner}:randperm", self.permutation)
        names = ["random:shuffle", "random:sample"]
        if "numpy" in sys.modules:
            names += ["numpy.random:shuffle", "numpy.random:permutation"]
            replace("numpy.random:default_rng", self.own_of_numpy)
        for name in names:
            generator = name.partition(":")[0].partition(".")[0]
            replace(name, partial(self.shuffle, generator))

    def permutation(self, original, count, *args, generator=None, **options):
        """Wrap torch.randperm; RandomSampler seeds its own generator from torch's."""
        by = sys._getframe(2).f_locals.get("self")
        used = generator or torch.default_generator
        own = used is not torch.default_generator and not isinstance(by, RandomSampler)
        seed = used.initial_seed() if own else None
        name = "own" if own else "torch"
        self.write(name, count, lambda: digest(used.get_state()), seed)
        return original(count, *args, generator=generator, **options)

    def shuffle(self, name, original, items, *args, **options):
        count = items if isinstance(items, int) else len(items)
        self.write(name, count, lambda: generator_states()[name])
        return original(items, *args, **options)

    def own_of_numpy(self, original, *args, **options):
        """Wrap NumPy's default_rng, whose later draws are unknown."""
        generator = original(*args, **options)
        known = [one for one in (*args, *options.values()) if one is not None]
        self.write("own", 0, lambda: str(generator.bit_generator.state), *known[:1])
        return generator

    def write(self, generator, count, state, seed=None):
        """Write the event; `state` returns the generator's state."""
        line = self.log.line() if self.left else None
        if line:
            self.left -= 1
            facts = {"generator": generator, "count": count, "state": state()}
            self.log.write("order", line=line, **facts, seed=str(seed))
