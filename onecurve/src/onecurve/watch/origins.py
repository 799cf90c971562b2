"""Record where a script creates networks and samplers and where it seeds."""

import re
import sys
from functools import partial
from weakref import WeakSet

import torch

from onecurve.set_up.replace import replace
from onecurve.watch.events import digest, place, tensors_in

MADE = "_made_at"  # the attribute that holds an object's line
COPIES = WeakSet()  # of networks, by deepcopy
READ_BY = "/data/_utils/worker.py", "/data/_utils/fetch.py", "onecurve/watch/samples.py"
READ_BY += "/torch/utils/checkpoint.py", "/torch/random.py"  # repeat draws
READS = "__getitem__", "__getitems__"
INSIDE = "<genexpr>", "<listcomp>", "<dictcomp>", "<lambda>"  # in a constructor


def origin(thing):
    """Return the line that created an object, such as "train.py:12", or None."""
    return getattr(thing, "__dict__", {}).get(MADE)


def note(thing, line):
    """Store an object's line unless it has one or can't."""
    if hasattr(thing, "__dict__"):
        thing.__dict__.setdefault(MADE, line)


def is_read():
    """Return whether samples are being read, by a loader or for their digests."""
    frame = sys._getframe(1)
    while frame:
        code = frame.f_code
        if code.co_filename.endswith(READ_BY) or code.co_name in READS:
            return True
        frame = frame.f_back
    return False


class Origins:
    """Records creation lines and writes the event `seeded`."""

    def __init__(self, log):
        self.log = log

    def install(self):
        replace("torch.nn:Module.__init__", self.module)
        replace("torch.utils.data:Sampler.__new__", self.sampler)
        replace("torch.utils.data:Subset.__init__", self.module)
        for module in "copy", "torch.optim.swa_utils":
            replace(f"{module}:deepcopy", self.copy)
        names = ["torch:manual_seed", "torch:set_rng_state"]
        names += ["torch.random:manual_seed", "torch.random:set_rng_state"]
        names += ["random:seed", "random:setstate"]
        if "numpy" in sys.modules:
            names += ["numpy.random:seed", "numpy.random:set_state"]
        for name in names:
            replace(name, partial(self.seed, re.match("[a-z]+", name)[0]))

    def module(self, original, module, *args, **options):
        """Wrap a constructor; the caller of the outermost module's counts."""
        original(module, *args, **options)
        note(module, self.caller(torch.nn.Module))

    def sampler(self, original, kind, *args, **options):
        sampler = object.__new__(kind)
        note(sampler, self.caller(kind))
        return sampler

    def copy(self, original, thing, *args, **options):
        """Wrap copy.deepcopy: networks are created where the script passes them."""
        copied = original(thing, *args, **options)
        if isinstance(copied, torch.nn.Module) and "_modules" in vars(copied):
            COPIES.add(copied)
            line = self.log.giver(thing)
            for part in copied.modules():
                part.__dict__[MADE] = line
        return copied

    def seed(self, generator, original, *args, **options):
        """Wrap setting a seed or state; it doesn't count if samples are read."""
        if not is_read():
            given = [*args, *options.values()]
            told = "".join(map(digest, tensors_in(given))) or repr(given)
            if told in ("[]", "[None]"):
                told = f"none, at {self.log.clock()}"  # another one on each rank
            facts = {"generator": generator, "seed": told}
            self.log.write("seeded", line=self.log.line(), **facts)
        return original(*args, **options)

    def caller(self, kind):
        """Return the line that called the outermost constructor of a kind, or None."""
        found = None
        for frame in self.log.frames():
            code = frame.f_code.co_name
            if code == "__init__" and isinstance(frame.f_locals.get("self"), kind):
                found = None  # calls inside it created only parts
            elif code not in INSIDE:
                found = found or place(frame)
        return found
