"""Import what most scripts need, in the process that the others are forked from."""

import atexit
import gc
from contextlib import suppress
from functools import cache
from importlib import import_module, metadata

NAMES = [
    "torch",
    "torchvision",
    "torch.distributed.checkpoint.state_dict",
    "tqdm",
    "onecurve.start.ranks",
    "onecurve.feed.rank",
]

gc.disable()  # imports take a sixth longer with it
for name in NAMES:
    with suppress(ImportError):  # not all are installed everywhere
        import_module(name)
# In each rank, PyTorch asks for backends, and this reads a file of every package.
metadata.entry_points = cache(metadata.entry_points)
metadata.entry_points(group="torch.distributed.backends")
gc.freeze()  # so no forked process goes through these objects, or copies them
atexit.register(gc.unfreeze)  # a package complains about what is left at exit
gc.enable()
