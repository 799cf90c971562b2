"""What rank 0 prints under a condition, and what the other ranks would print there.

A rank that does not take the branch evaluates all the same what the branch hands to
functions, at the `if`, from what it has in its variables. Only names, attributes,
items, arithmetic and calls that change nothing are evaluated.
"""

import ast
import contextlib
import sys
import threading
import time
from pathlib import Path

import torch

from tools.watch.events import place

HARMLESS = {"float", "int", "len", "round", "sum", "min", "max", "abs", "item", "mean"}
ALLOWED = ast.Name, ast.Attribute, ast.Subscript, ast.BinOp, ast.UnaryOp, ast.Constant
ALLOWED += ast.operator, ast.unaryop, ast.expr_context, ast.Call, ast.Slice
CLOCKS = ["perf_counter", "time", "monotonic", "process_time"]
MOST = 200  # times that a line is looked at


class Clock(float):
    """A number that came from a clock: it differs by rank, and may."""


def clocked(name):
    """Return a method of float whose result is a Clock."""

    def method(self, *others):
        result = getattr(float, name)(self, *others)
        return Clock(result) if isinstance(result, float) else result

    return method


for _name in ["add", "sub", "mul", "truediv", "floordiv", "mod"]:
    setattr(Clock, f"__{_name}__", clocked(f"__{_name}__"))
    setattr(Clock, f"__r{_name}__", clocked(f"__r{_name}__"))


def harmless(node):
    """Return whether an expression can be evaluated without changing anything."""
    for one in ast.walk(node):
        if not isinstance(one, ALLOWED):
            return False
        if isinstance(one, ast.Call):
            name = getattr(one.func, "id", getattr(one.func, "attr", ""))
            if name not in HARMLESS:
                return False
    return not isinstance(node, ast.Constant)


class Inlined(ast.NodeTransformer):
    """Puts what a branch has assigned to a name in the place of the name."""

    def __init__(self, assigned):
        self.assigned = assigned

    def visit_Name(self, node):
        return self.assigned.get(node.id, node)


def given(call, assigned):
    """Return the expressions that a call is given, as syntax trees, f-strings apart."""
    found = []
    for value in [*call.args, *(keyword.value for keyword in call.keywords)]:
        fields = [one for one in ast.walk(value) if isinstance(one, ast.FormattedValue)]
        for one in [field.value for field in fields] or [value]:
            copy = ast.parse(ast.unparse(one), mode="eval")
            inlined = Inlined(assigned).visit(copy).body
            if harmless(inlined):
                found.append(inlined)
    return found


def branches(text):
    """Return {line of an `if`: (texts of what it prints, last line)} of a script."""
    found = {}
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.If):
            continue
        assigned = {}
        expressions = []
        for statement in node.body:
            if isinstance(statement, ast.Expr) and isinstance(
                statement.value, ast.Call
            ):
                expressions += given(statement.value, assigned)
            elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
                target = statement.targets[0]
                if isinstance(target, ast.Name) and harmless(statement.value):
                    inlined = Inlined(dict(assigned)).visit(statement.value)
                    assigned[target.id] = inlined
        texts = list(dict.fromkeys(ast.unparse(one) for one in expressions))
        if texts:
            found[node.lineno] = texts, node.body[0].lineno
    return found


def number(value):
    """Return a value as a float; None where it is no number, or one of a clock."""
    if isinstance(value, Clock | bool):
        return None
    if isinstance(value, torch.Tensor):
        if hasattr(value, "placements") or value.numel() != 1:
            return None
        value = value.detach().item()
    return float(value) if isinstance(value, int | float) else None


class Numbers:
    """Writes down, at each `if` that prints, the numbers that it would print."""

    def __init__(self, log):
        self.log = log
        self.files = {}  # file -> branches
        self.seen = {}  # (file, line) -> how many times
        self.inside = {}  # id of a frame -> the `if` that it has just passed

    def install(self):
        """Watch the lines of the script that this thread executes."""
        for name in CLOCKS:
            setattr(time, name, clock(getattr(time, name)))
        sys.settrace(self.call)
        assert threading.current_thread() is threading.main_thread()

    def branches_of(self, path):
        """Return the branches of a file that is part of the script."""
        if path not in self.files:
            try:
                self.files[path] = branches(Path(path).read_text())
            except (OSError, SyntaxError, ValueError):
                self.files[path] = {}
        return self.files[path]

    def call(self, frame, event, argument):
        """When a function begins: watch the lines of those that have such a branch."""
        if not self.log.is_script(frame):
            return None
        path = frame.f_code.co_filename
        return self.line if self.branches_of(path) else None

    def line(self, frame, event, argument):
        """When a line begins."""
        if event != "line":
            return self.line
        path = frame.f_code.co_filename
        told = self.branches_of(path).get(frame.f_lineno)
        passed = self.inside.pop(id(frame), None)
        if passed:
            first, line, times = passed
            if frame.f_lineno == first:
                self.log.write("taken", branch=line, times=times)
        if told:
            self.evaluate(frame, told)
        return self.line

    def evaluate(self, frame, told):
        """Write down the numbers that a branch would print."""
        where = place(frame)
        times = self.seen.get(where, 0) + 1
        self.seen[where] = times
        if times > MOST:
            return
        numbers = {}
        texts, first = told
        for text in texts:
            # a name that there is not yet, say: the branch itself would tell
            with contextlib.suppress(Exception):
                value = number(eval(text, frame.f_globals, frame.f_locals))
                if value is not None:
                    numbers[text] = value
        self.log.write("numbers", line=where, times=times, numbers=numbers)
        self.inside[id(frame)] = first, where, times


def clock(original):
    """Return a clock whose times know that they are."""
    return lambda: Clock(original())
