"""Record the random orders that a script draws."""

import sys
from contextlib import suppress
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
        for name in names:
            generator = name.partition(":")[0].partition(".")[0]
            replace(name, partial(self.shuffle, generator))

    def permutation(self, original, *args, generator=None, **options):
        """Wrap torch.randperm; RandomSampler seeds its own generator from torch's."""
        by = sys._getframe(2).f_locals.get("self")
        used = generator or torch.default_generator
        own = used is not torch.default_generator and not isinstance(by, RandomSampler)
        seed = used.initial_seed() if own else None
        name = "own" if own else "torch"
        self.record(name, args, lambda: digest(used.get_state()), seed)
        return original(*args, generator=generator, **options)

    def shuffle(self, name, original, *args, **options):
        self.record(name, args, lambda: generator_states()[name])
        return original(*args, **options)

    def record(self, generator, args, state, seed=None):
        """Write the event; `state` returns the generator's state."""
        line = self.log.line() if self.left else None
        if line:
            self.left -= 1
            count = 0
            with suppress(LookupError, TypeError, ValueError):
                count = len(args[0]) if hasattr(args[0], "__len__") else int(args[0])
            facts = {"generator": generator, "count": count, "state": state()}
            self.log.write("order", line=line, **facts, seed=str(seed))
