"""What one rank prints under a condition, and what the other ranks would print there.

At an `if` that asks for the rank, every rank evaluates the condition, and each name,
attribute and item that the branch uses, from what it has in its variables. Those that
are numbers are compared, in dicts and lists as well.
"""

import ast
import contextlib
import os
import re
import sys
import time
import types
from collections import Counter
from itertools import islice
from pathlib import Path

import torch

from onecurve.events import place
from onecurve.replace import CLOCKS

ASKS = "rank", "main", "master", "primary"  # in conditions, and functions for them
VALUES = ast.Name, ast.Attribute, ast.Subscript
ALLOWED = *VALUES, ast.Constant, ast.BinOp, ast.operator, ast.UnaryOp, ast.unaryop
ALLOWED += ast.Compare, ast.cmpop, ast.BoolOp, ast.boolop, ast.Call, ast.expr_context
# Decorators of functions for one rank, and the condition under which they are called.
KEPT = "rank_?(zero|0)|(main|master|primary)_?(process|only|rank)|on_?(main|master)"
OF_ONE = "0 == rank"
READS = "eval", "train", "state_dict"  # methods that change no weights
TRAINED = torch.nn.Module, torch.optim.Optimizer
MOST = 200  # times that a line is looked at
MOST_ITEMS = 50  # of a dict or a list


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
    """Return {value that statements use: line}, a text, but those that they make.

    What is returned is not printed yet.
    """
    made = set()
    used = {}
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(statement, ast.Return) or not isinstance(node, VALUES):
                continue
            if isinstance(node.ctx, ast.Store):
                made.add(ast.unparse(node))
            elif harmless(node):
                used.setdefault(ast.unparse(node), node.lineno)  # in their order
    return {text: line for text, line in used.items() if text not in made}


def changed_in(body):
    """Return {object that statements change: line}, a text: called, set, looped over.

    Each also stands for what it is an attribute or an item of.
    """
    found = {}
    for statement in body:
        for node in ast.walk(statement):
            owners = []
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
                called = node.value.func
                if isinstance(called, ast.Attribute) and called.attr not in READS:
                    owners = [called.value]
            elif isinstance(node, ast.Assign):
                owners = node.targets
            elif isinstance(node, ast.AugAssign):
                owners = [node.target]
            elif isinstance(node, ast.For):
                owners = [node.iter]
            for owner in owners:
                for one in ast.walk(owner):
                    if isinstance(one, VALUES) and isinstance(one.ctx, ast.Load):
                        found.setdefault(ast.unparse(one), one.lineno)
    return found


def held_by(value):
    """Return the ids of the networks and optimizers that a value is or has."""
    if isinstance(value, types.ModuleType):
        return []
    held = [value, *getattr(value, "__dict__", {}).values()]
    return [id(one) for one in held if isinstance(one, TRAINED)]


def branches(text):
    """Return {line: [(condition, values_in, changed_in)]} of what some ranks execute.

    At an `if`: what it holds, and what comes after it where it leaves. At a call of a
    function that its decorator keeps for one rank: that line, under OF_ONE.
    """
    tree = ast.parse(text)
    of_one = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            marks = [ast.unparse(mark) for mark in node.decorator_list]
            if re.search(KEPT, " ".join(marks)):
                of_one.add(node.name)
    found = {}
    for node in ast.walk(tree):
        for name in "body", "orelse", "finalbody":
            body = getattr(node, name, None)
            for number, one in enumerate(body if isinstance(body, list) else [], 1):
                parts = parts_of(one, body[number:], of_one)
                values = [(asked, values_in(to), changed_in(to)) for asked, to in parts]
                found.setdefault(one.lineno, []).extend(values)
    return {line: parts for line, parts in found.items() if parts}


def parts_of(statement, rest, of_one):
    """Return [(condition, statements)] of what a statement leaves to some ranks.

    `rest` is what follows it, and `of_one` are the names of one rank's functions.
    """
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        _, _, called = ast.unparse(statement.value.func).rpartition(".")
        return [(OF_ONE, [statement])] if called in of_one else []
    if not isinstance(statement, ast.If) or not harmless(statement.test):
        return []
    condition = ast.unparse(statement.test)
    if not any(word in condition for word in ASKS):
        return []
    parts = [(condition, statement.body)]
    if isinstance(statement.body[-1], ast.Return | ast.Continue):
        parts.append((f"not ({condition})", rest))
    return parts


def numbers_in(text, value, depth=2):
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
        if condition == OF_ONE:
            taken = os.environ.get("RANK") == "0"
        else:
            taken = bool(eval(condition, *variables))
        file, _, _ = where.rpartition(":")
        numbers = {}
        lines = {}
        for text, line in values.items():
            with contextlib.suppress(Exception):
                for name, value in numbers_in(text, eval(text, *variables)).items():
                    numbers[name] = value
                    lines[name] = f"{file}:{line}"
        changes = {}
        for text, line in changed.items() if taken else []:
            with contextlib.suppress(Exception):
                for one in held_by(eval(text, *variables)):
                    changes.setdefault(one, f"{file}:{line}")
        self.log.write(
            "numbers",
            changes=changes,
            branch=f"{where} {condition}",
            times=self.times[where],
            taken=taken,
            numbers=numbers,
            lines=lines,
        )
