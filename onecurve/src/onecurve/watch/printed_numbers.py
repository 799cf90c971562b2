"""Record what a rank prints under a condition and what others would print there.

At an `if` on the rank, every rank evaluates the condition and the names, attributes
and items that the branch uses. Numbers are compared, also inside dicts and lists.
"""

import contextlib
import inspect
import logging
import math
import os
import re
import sys
import time
from collections import Counter
from itertools import islice
from pathlib import Path

import torch
from torch.utils.data import Dataset, Sampler

from onecurve.set_up.replace import CLOCKS, replace
from onecurve.watch.branches import COMPARES, DECIDES, OF_ONE, branches
from onecurve.watch.events import place
from onecurve.watch.origins import is_read
from onecurve.wording import RETURNS

OF_ALL = DECIDES, COMPARES
MOST = 200  # evaluations of a line
MOST_ITEMS = 50  # per dict or tuple
MOST_LISTED = 1000  # per list
# A word and its number, except times and sizes: 0.2s, 188.91ms.
UNIT = r"(?![\w.]|\s*(?:m?s|sec\w*|[GM]i?B|it/s)\b)"
TOLD = rf"([A-Za-z][\w@-]*)\W{{0,4}}?(-?\d+\.\d+(?:e[+-]?\d+)?){UNIT}"


TIMES = set()  # texts of Clocks


class Clock(float):
    """A number read from a clock, which may differ by rank."""

    def __format__(self, spec):
        text = super().__format__(spec)
        TIMES.add(text.strip())
        return text


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
    """Return a clock function that returns Clocks."""
    return lambda: Clock(original())


def numbers_in(text, value, depth):
    """Return {string: number} of a value and of the items of its dicts and tuples.

    A list has one number, whatever its order: ranks may gather it from their parts.
    """
    one = number(value)
    if one is not None:
        return {text: one}
    items = []
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, tuple):  # integers may be indices
        items = [(key, one) for key, one in enumerate(value) if type(one) is not int]
    elif isinstance(value, list) and depth and 0 < len(value) <= MOST_LISTED:
        known = [number(one) for one in value if type(one) is not int]
        return {f"norm({text})": math.hypot(*known)} if None not in known else {}
    found = {}
    for key, one in islice(items, MOST_ITEMS if depth else 0):
        found |= numbers_in(f"{text}[{key!r}]", one, depth - 1)
    return found


def told_in(value):
    """Return {word before it, in quotes: number} for the numbers in a value."""
    texts = [value] if isinstance(value, str) else value
    found = {}
    for text in texts if isinstance(texts, tuple | list) else []:
        for match in re.finditer(TOLD, text) if isinstance(text, str) else []:
            name = f'"{match[1]}"'
            while name in found:
                name += "'"
            if match[2] not in TIMES:
                found[name] = float(match[2])
    return found


def handlers(logger):
    """Return the handlers of a logger and of the parents it propagates to."""
    found = []
    while logger:
        found += logger.handlers
        logger = logger.parent if logger.propagate else None
    return found


def number(value):
    """Return a value as a float, or None if it isn't a number or is a Clock."""
    if isinstance(value, torch.Tensor):
        is_weight = isinstance(value, torch.nn.Parameter)
        if is_weight or hasattr(value, "placements") or value.numel() != 1:
            return None
        value = value.detach().item()
    if isinstance(value, Clock | bool) or not isinstance(value, int | float):
        return None
    return float(value)


class PrintedNumbers:
    """Records at each `if` whether it is taken and the numbers in the branch."""

    def __init__(self, log):
        self.log = log
        self.files = {}  # file -> branches
        self.times = Counter()  # line -> times reached

    def install(self):
        """Trace the lines of the script in this thread."""
        for name in CLOCKS:
            if not name.endswith("_ns"):
                setattr(time, name, clock(getattr(time, name)))
        torch.serialization.add_safe_globals([Clock])  # for checkpoints
        replace("logging:Logger.info", self.logged)
        replace("builtins:print", self.printed)
        sys.settrace(self.call)

    def logged(self, original, logger, msg, *args, **options):
        """Wrap Logger.info as a branch: ranks may lack handlers or use other levels."""
        # logging reports TypeError and ValueError itself
        with contextlib.suppress(TypeError, ValueError):
            kinds = {type(one) for one in handlers(logger)} - {logging.NullHandler}
            taken = bool(kinds) and logger.isEnabledFor(logging.INFO)
            self.tells("log", taken, str(msg) % args if args else str(msg))
        return original(logger, msg, *args, **options)

    def printed(self, original, *values, **options):
        """Wrap print as a branch, for numbers that are computed only to be printed."""
        self.tells("print", True, " ".join(map(str, values)))
        return original(*values, **options)

    def tells(self, kind, taken, text):
        """Write a branch event for a text's numbers, if they aren't one sample's."""
        where = None if is_read() else self.log.line()
        if where and self.times[where] < MOST:
            told = told_in(text)
            self.times[where] += 1
            self.write(where, kind, taken, told, dict.fromkeys(told, where))

    def write(self, where, condition, taken, numbers, lines):
        """Write a branch event: its numbers and their lines."""
        facts = {"branch": f"{where} {condition}", "taken": taken}
        facts |= {"numbers": numbers, "lines": lines}
        if condition == COMPARES:
            self.log.write("compares", **facts)
        else:
            self.log.write("decides" if condition == DECIDES else "numbers", **facts)

    def call(self, frame, event, argument):
        """Trace the lines of a function of the script."""
        if not self.log.is_script(frame) or is_read():
            return None
        path = frame.f_code.co_filename
        if path not in self.files:
            self.files[path] = {}
            with contextlib.suppress(OSError, SyntaxError, ValueError):
                self.files[path] = branches(Path(path).read_text(encoding="utf-8"))
        return self.line

    def line(self, frame, event, argument):
        """Evaluate the branches that begin at a line; record a reduced result."""
        parts = self.files[frame.f_code.co_filename].get(frame.f_lineno, [])
        if event == "line":
            self.log.pass_line(frame.f_code.co_filename, frame.f_lineno)
        elif event == "return":
            self.log.returns(frame)
        if event == "return" and frame.f_code in self.log.reducers:
            where = place(frame)
            found = numbers_in(f"{frame.f_code.co_name}()", argument, 2)
            self.times[where] += 1
            if found and self.times[where] < MOST:
                self.write(where, RETURNS, True, found, dict.fromkeys(found, where))
        if event == "line" and parts:
            where = place(frame)
            self.times[where] += 1
            for part in parts if self.times[where] < MOST else []:
                # such as an undefined name: the branch itself would raise it
                with contextlib.suppress(Exception):
                    self.evaluate(frame, where, *part)
        return self.line

    def evaluate(self, frame, where, condition, values):
        """Record whether this rank takes a branch and the numbers in it."""
        variables = frame.f_globals, frame.f_locals
        if condition in OF_ALL:
            taken = False
            for one in self.log.frames(frame):
                is_of_data = isinstance(one.f_locals.get("self"), Dataset | Sampler)
                if is_of_data or one.f_code.co_flags & inspect.CO_GENERATOR:
                    return  # samples and batches differ by rank
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
                found = numbers_in(text, value, 0 if condition in OF_ALL else 2)
                lines |= dict.fromkeys(found, f"{file}:{line}")
                if text in (*given.args, given.varargs):  # an argument
                    told = told_in(value)
                    caller = next(self.log.frames(frame.f_back), frame)
                    lines |= dict.fromkeys(told, place(caller))
                    found |= told
                numbers |= found
        self.write(where, condition, taken, numbers, lines)
