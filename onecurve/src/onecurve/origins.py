"""Where the script makes its networks and samplers, and where it sets seeds."""

import sys
from functools import partial

import torch

from onecurve.events import place
from onecurve.replace import replace

MADE = "_made_at"  # the attribute in which a thing keeps its line
READ_BY = "/data/_utils/worker.py", "/data/_utils/fetch.py", "onecurve/samples.py"
INSIDE = "<genexpr>", "<listcomp>", "<dictcomp>", "<lambda>"  # of a constructor


def origin(thing):
    """Return the line that has made a thing, such as "train.py:12", or None."""
    return getattr(thing, "__dict__", {}).get(MADE)


def note(thing, line):
    """Have a thing keep its line, unless it has one, or cannot."""
    if hasattr(thing, "__dict__"):
        thing.__dict__.setdefault(MADE, line)


def is_read():
    """Return whether samples are being read, by a loader or for their digests."""
    frame = sys._getframe(1)
    while frame and not frame.f_code.co_filename.endswith(READ_BY):
        frame = frame.f_back
    return frame is not None


class Origins:
    """Notes lines, and writes the event `seeded` to a log."""

    def __init__(self, log):
        self.log = log

    def install(self):
        """Put the methods below in place."""
        replace("torch.nn:Module.__init__", self.module)
        replace("torch.utils.data:Sampler.__new__", self.sampler)
        for module in "copy", "torch.optim.swa_utils":
            replace(f"{module}:deepcopy", self.copy)
        seeds = {"torch": "torch:manual_seed", "random": "random:seed"}
        if "numpy" in sys.modules:
            seeds["numpy"] = "numpy.random:seed"
        for generator, name in seeds.items():
            replace(name, partial(self.seed, generator))

    def module(self, original, module, *args, **options):
        """Around the constructor of a module: who calls the outermost one counts."""
        original(module, *args, **options)
        note(module, self.caller(torch.nn.Module))

    def sampler(self, original, kind, *args, **options):
        """Around the making of a sampler."""
        sampler = object.__new__(kind)
        note(sampler, self.caller(kind))
        return sampler

    def copy(self, original, thing, *args, **options):
        """Around copy.deepcopy: a network's is made by who gives it away for that."""
        copied = original(thing, *args, **options)
        if isinstance(copied, torch.nn.Module):
            line = self.log.giver(thing)
            for part in copied.modules():
                part.__dict__[MADE] = line
        return copied

    def seed(self, generator, original, *args, **options):
        """Around the function that seeds a generator, as one sample's reading may."""
        if not is_read():
            told = repr([*args, *options.values()])
            facts = {"generator": generator, "seed": told}
            self.log.write("seeded", line=self.log.line(), **facts)
        return original(*args, **options)

    def caller(self, kind):
        """Return the line that called the script's constructors of a kind, or None."""
        found = None
        for frame in self.log.frames():
            code = frame.f_code.co_name
            if code == "__init__" and isinstance(frame.f_locals.get("self"), kind):
                found = None  # what was called by it made a part of the thing
            elif code not in INSIDE:
                found = found or place(frame)
        return found
