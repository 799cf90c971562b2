"""What one rank prints under a condition, and what the other ranks would print there.

At an `if` that asks for the rank, every rank evaluates the condition, and each name,
attribute and item that the branch uses, from what it has in its variables. Those that
are numbers are compared, in dicts and lists as well.
"""

import contextlib
import inspect
import logging
import os
import re
import sys
import time
import types
from collections import Counter
from itertools import islice
from pathlib import Path

import torch
from torch.utils.data import Dataset

from onecurve.branches import DECIDES, OF_ONE, branches
from onecurve.events import place
from onecurve.identities import own_number
from onecurve.replace import CLOCKS, replace

TRAINED = torch.nn.Module, torch.optim.Optimizer
MOST = 200  # times that a line is looked at
MOST_ITEMS = 50  # of a dict or a list
# A word and its number, but for times and sizes: 0.2s, 188.91ms.
UNIT = r"(?![\w.]|\s*(?:m?s|sec\w*|[GM]i?B|it/s)\b)"
TOLD = rf"([A-Za-z]\w*)\W{{0,4}}?(-?\d+\.\d+(?:e[+-]?\d+)?){UNIT}"


class Clock(float):
    """A number that came from a clock: it differs by rank, and may."""


def clocked(name):
    """Return a method of float whose result is a Clock."""

    def method(self, *others):
        result = getattr(float, name)(self, *others)
        return Clock(result) if isinstance(result, float) else result

    return method


for _name in ["add", "sub", "mul", "truediv"]:
    setattr(Clock, f"__{_name}__", clocked(f"__{_name}__"))
    setattr(Clock, f"__r{_name}__", clocked(f"__r{_name}__"))


def clock(original):
    """Return a clock whose times know that they are."""
    return lambda: Clock(original())


def held_by(value):
    """Return the numbers of the networks and optimizers that a value is or has."""
    if isinstance(value, types.ModuleType):
        return []
    held = [value, *getattr(value, "__dict__", {}).values()]
    held += value.children() if isinstance(value, torch.nn.Module) else []
    return [own_number(one) for one in held if isinstance(one, TRAINED)]


def numbers_in(text, value, depth):
    """Return {text: number} of a value, and of what dicts and lists of it hold."""
    one = number(value)
    if one is not None:
        return {text: one}
    items = []
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list | tuple):  # whole numbers in a list are indices, say
        items = [(key, one) for key, one in enumerate(value) if type(one) is not int]
    found = {}
    for key, one in islice(items, MOST_ITEMS if depth else 0):
        found |= numbers_in(f"{text}[{key!r}]", one, depth - 1)
    return found


def told_in(value):
    """Return {word before it, in quotes: number} of the numbers in a text, or texts."""
    texts = [value] if isinstance(value, str) else value
    found = {}
    for text in texts if isinstance(texts, tuple | list) else []:
        for match in re.finditer(TOLD, text) if isinstance(text, str) else []:
            name = f'"{match[1]}"'
            while name in found:
                name += "'"
            found[name] = float(match[2])
    return found


def handlers(logger):
    """Return the handlers of a logger, and of those above it that get its lines."""
    found = []
    while logger:
        found += logger.handlers
        logger = logger.parent if logger.propagate else None
    return found


def number(value):
    """Return a value as a float; None where it is no number, or one of a clock."""
    if isinstance(value, torch.Tensor):
        is_weight = isinstance(value, torch.nn.Parameter)
        if is_weight or hasattr(value, "placements") or value.numel() != 1:
            return None
        value = value.detach().item()
    if isinstance(value, Clock | bool) or not isinstance(value, int | float):
        return None
    return float(value)


class Numbers:
    """Writes down, at each `if`, whether it is taken and the numbers in the branch."""

    def __init__(self, log):
        self.log = log
        self.files = {}  # file -> branches
        self.times = Counter()  # line -> how often it was reached

    def install(self):
        """Watch the lines of the script that this thread executes."""
        for name in CLOCKS:
            if not name.endswith("_ns"):
                setattr(time, name, clock(getattr(time, name)))
        torch.serialization.add_safe_globals([Clock])  # a checkpoint may have one
        replace("logging:Logger.info", self.logged)
        sys.settrace(self.call)

    def logged(self, original, logger, msg, *args, **options):
        """Around a line of a log, which some ranks may leave out: a branch of its own.

        Their logger has a higher level, say, or a handler that does nothing.
        """
        where = self.log.line()
        # TypeError and ValueError: logging tells them by itself
        with contextlib.suppress(TypeError, ValueError):
            told = told_in(str(msg) % args if args else str(msg))
            kinds = {type(one) for one in handlers(logger)} - {logging.NullHandler}
            taken = bool(kinds) and logger.isEnabledFor(logging.INFO)
            self.times[where] += 1
            self.write(where, "log", taken, told, dict.fromkeys(told, where))
        return original(logger, msg, *args, **options)

    def write(self, where, condition, taken, numbers, lines, changes=None):
        """Write down a branch: its numbers, their lines, and what it changes."""
        self.log.write(
            "decides" if condition == DECIDES else "numbers",
            branch=f"{where} {condition}",
            times=self.times[where],
            taken=taken,
            numbers=numbers,
            lines=lines,
            changes=changes or {},
        )

    def call(self, frame, event, argument):
        """When a function of the script begins: watch its lines."""
        if not self.log.is_script(frame):
            return None
        path = frame.f_code.co_filename
        if path not in self.files:
            self.files[path] = {}
            with contextlib.suppress(OSError, SyntaxError, ValueError):
                self.files[path] = branches(Path(path).read_text(encoding="utf-8"))
        return self.line

    def line(self, frame, event, argument):
        """When a line begins."""
        parts = self.files[frame.f_code.co_filename].get(frame.f_lineno, [])
        if event == "line" and parts:
            where = place(frame)
            self.times[where] += 1
            for part in parts if self.times[where] < MOST else []:
                # a name that there is not yet, say: the branch itself would tell
                with contextlib.suppress(Exception):
                    self.evaluate(frame, where, *part)
        return self.line

    def evaluate(self, frame, where, condition, values, changed):
        """Write down whether this rank takes a branch, and the numbers in it."""
        variables = frame.f_globals, frame.f_locals
        if condition == DECIDES:
            taken = False
            is_of_data = isinstance(frame.f_locals.get("self"), Dataset)
            if is_of_data or frame.f_code.co_flags & inspect.CO_GENERATOR:
                return  # of samples or batches, which are each rank's own
        elif condition == OF_ONE:
            taken = os.environ.get("RANK") == "0"
        else:
            taken = bool(eval(condition, *variables))
        file, _, _ = where.rpartition(":")
        given = inspect.getargvalues(frame)
        numbers = {}
        lines = {}
        for text, line in values.items():
            with contextlib.suppress(Exception):
                value = eval(text, *variables)
                found = numbers_in(text, value, 0 if condition == DECIDES else 2)
                lines |= dict.fromkeys(found, f"{file}:{line}")
                if text in (*given.args, given.varargs):  # of a function that prints
                    told = told_in(value)
                    caller = next(self.log.frames(frame.f_back), frame)
                    lines |= dict.fromkeys(told, place(caller))
                    found |= told
                numbers |= found
        changes = {}
        for text, line in changed.items() if taken else []:
            with contextlib.suppress(Exception):
                for one in held_by(eval(text, *variables)):
                    changes.setdefault(one, f"{file}:{line}")
        self.write(where, condition, taken, numbers, lines, changes)
