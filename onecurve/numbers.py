"""What one rank prints under a condition, and what the other ranks would print there.

At an `if` that asks for the rank, every rank evaluates the condition, and each name,
attribute and item that the branch uses, from what it has in its variables. Those that
are numbers are compared.
"""

import ast
import contextlib
import sys
import time
from collections import Counter
from pathlib import Path

import torch

from onecurve.events import place
from onecurve.replace import CLOCKS

ASKS = "rank", "main", "master", "primary"  # in conditions, and functions for them
VALUES = ast.Name, ast.Attribute, ast.Subscript
ALLOWED = *VALUES, ast.Constant, ast.BinOp, ast.operator, ast.UnaryOp, ast.unaryop
ALLOWED += ast.Compare, ast.cmpop, ast.BoolOp, ast.boolop, ast.Call, ast.expr_context
MOST = 200  # times that a line is looked at


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


def harmless(node):
    """Return whether an expression can be evaluated without changing anything."""
    for one in ast.walk(node):
        if not isinstance(one, ALLOWED):
            return False
        if isinstance(one, ast.Call):
            name = getattr(one.func, "id", getattr(one.func, "attr", ""))
            if not any(word in name for word in ASKS):
                return False
    return True


def values_in(body):
    """Return the texts of the values that a branch uses, but those that it makes."""
    made = set()
    used = {}
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, VALUES) and isinstance(node.ctx, ast.Store):
                made.add(ast.unparse(node))
            elif isinstance(node, VALUES) and harmless(node):
                used[ast.unparse(node)] = None  # in their order
    return [text for text in used if text not in made]


def branches(text):
    """Return {line of an `if` for some ranks: (condition, values in the branch)}."""
    found = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.If) and harmless(node.test):
            condition = ast.unparse(node.test)
            if any(word in condition for word in ASKS):
                found[node.lineno] = condition, values_in(node.body)
    return found


def number(value):
    """Return a value as a float; None where it is no number, or one of a clock."""
    if isinstance(value, torch.Tensor):
        if hasattr(value, "placements") or value.numel() != 1:
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
        sys.settrace(self.call)

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
        branch = self.files[frame.f_code.co_filename].get(frame.f_lineno)
        if event == "line" and branch:
            where = place(frame)
            self.times[where] += 1
            if self.times[where] < MOST:
                # a name that there is not yet, say: the branch itself would tell
                with contextlib.suppress(Exception):
                    self.evaluate(frame, where, *branch)
        return self.line

    def evaluate(self, frame, where, condition, texts):
        """Write down whether this rank takes a branch, and the numbers in it."""
        variables = frame.f_globals, frame.f_locals
        taken = bool(eval(condition, *variables))
        numbers = {}
        for text in texts:
            with contextlib.suppress(Exception):
                numbers[text] = number(eval(text, *variables))
        times = self.times[where]
        self.log.write("numbers", line=where, times=times, taken=taken, numbers=numbers)
