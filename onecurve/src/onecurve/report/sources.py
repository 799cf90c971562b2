"""Trace a value in a script back to the statements that set it.

Ranks see where a value is used, but a bug is often where it is set. Names lead to
their assignments, arguments to calls of the function, and calls to return values.
"""

import ast
import re

from onecurve.evidence.origins import BY_RANK, UNORDERED
from onecurve.rules import RULES
from onecurve.watch.branches import called

MOST = 40  # statements
CALLS = "DistributedSampler|set_epoch|no_sync|zero_grad|unscale_"  # in fixes
SHARDED = r"to_local\("
CAUSES = {  # what to look for, up to a finding's line; a rate's may be anywhere
    "sync": "no_sync|require_backward_grad_sync|set_requires_gradient_sync",
    "rate": r"\['lr'\] \S?= ",
    "hash": rf"(?<!sorted\()(?<!len\()({UNORDERED})",
}
WHOLE = "to_local() returns one rank's shard: use full_tensor(), or sum its squares"
PASSED_ON = r"(= |return )\w+$"  # or a call of the script's function
COPIED = r"\.(clone|contiguous|cpu|cuda|to|type|double|float|half|bfloat16)\([^()]*\)$"
UNUSED = "nothing uses what {} computes here"
USE = "pass the tensor itself, not a copy, or use the result"


class Source:
    """A script's statements, parsed from its source."""

    def __init__(self, text):
        self.tree = ast.parse(text)
        self.block = {}  # statement -> enclosing function or module
        self.functions = {}  # name -> function
        self.own = []  # names of functions and classes
        self.collect(self.tree, self.tree)

    def collect(self, node, block):
        """Add the statements below a node of a block."""
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt):
                self.block[child] = block
            is_function = isinstance(child, ast.FunctionDef)
            if is_function or isinstance(child, ast.ClassDef):
                self.own.append(child.name)
                self.functions |= {child.name: child} if is_function else {}
            self.collect(child, child if is_function else block)

    def at(self, line):
        """Return the innermost statement at a line, or None."""
        found = None
        for one in self.block:
            if one.lineno <= line <= one.end_lineno:
                found = one  # an inner one comes later
        return found

    def latest(self, words, line):
        """Return the last statement up to a line that matches a pattern, or None."""
        found = None
        for one in self.block:
            if one.lineno <= line and re.search(words, head(one)):
                found = one
        return found

    def back(self, start, names):
        """Return the statements that set names in another one, nearest first."""
        found = []
        todo = [(start, names)]
        while todo and len(found) < MOST:
            for one in self.setters(*todo.pop(0)):
                if one is not start and one not in found:
                    found.append(one)
                    todo.append((one, names_in(one)))
        return found

    def setters(self, user, names):
        """Yield the statements that set or return names for another one."""
        block = self.block[user]
        for name in names:
            one = self.last_set(name, block, user.lineno)
            if one is None and name in arguments(block):
                yield from self.calls(block.name)
                continue
            one = one or self.last_set(name, self.tree, user.lineno)
            inner = [self.functions.get(name)]  # a function's name
            if one is not None:
                yield one
                calls = [node for node in own_nodes(one) if isinstance(node, ast.Call)]
                inner = [self.functions.get(called(node)) for node in calls]
            for function in filter(None, inner):
                yield from self.returns(function)

    def last_set(self, name, block, line):
        """Return the last statement that sets a name before a line, or the first."""
        found = None
        for one, inside in self.block.items():
            here = inside is block or "." in name  # an attribute: anywhere
            sets = here and name in names_in(one, ast.Store)
            if sets and (not found or one.lineno < line):
                found = one
        return found

    def calls(self, name):
        """Yield the statements that call a function."""
        for one in self.block:
            if re.search(rf"(?<!def )\b{name}\(", head(one)):
                yield one

    def returns(self, function):
        """Yield a function's return and yield statements."""
        for one in ast.walk(function):
            yields = isinstance(one, ast.Expr) and isinstance(one.value, ast.Yield)
            if yields or isinstance(one, ast.Return):
                yield one

    def to_look_at(self, origin, start, found):
        """Return the statement that a rule's ORIGIN describes, or None."""
        for one in [start, *found] if origin else found:
            text = head(one)
            own = any(re.search(rf"\b{each}\(", text) for each in self.own)
            passes = own or re.search(PASSED_ON, text)
            if re.search(origin, text) if origin else not passes:
                return one
        return None


def head(statement):
    """Return a statement's source without the statements inside it."""
    return ast.unparse(statement).partition("\n")[0]


def own_nodes(statement):
    """Yield a statement's nodes, except those of statements inside it."""
    for child in ast.iter_child_nodes(statement):
        if not isinstance(child, ast.stmt):
            yield child
            yield from own_nodes(child)


def names_in(node, context=ast.Load):
    """Return names and attributes of `self` that a node reads or sets, not calls."""
    found = {}
    nodes = [node, *own_nodes(node)]
    calls = [one.func for one in nodes if isinstance(one, ast.Call)]
    for one in nodes:
        if isinstance(one, ast.Subscript) and isinstance(one.ctx, context):
            found |= names_in(one.value)
        is_own = isinstance(one, ast.Attribute) and ast.unparse(one.value) == "self"
        is_name = one not in calls and (isinstance(one, ast.Name) or is_own)
        if is_name and isinstance(one.ctx, context):
            found[ast.unparse(one)] = None
    return found


def arguments(block):
    """Return a function's argument names except `self`, or [] for a module."""
    listed = block.args.args if isinstance(block, ast.FunctionDef) else []
    return [one.arg for one in listed if one.arg != "self"]


def names_of(finding, start):
    """Return the names in a statement that a finding is about."""
    if finding.name in ("printed", "by_world", "decision_by_rank"):
        subject = finding.facts["text"]
        return [] if subject[0] == '"' else names_in(ast.parse(subject, mode="eval"))
    call = getattr(start, "value", None)
    if isinstance(call, ast.Call) and called(call) == "backward" and call.args:
        return names_in(call.args[0])  # the object may be an Accelerator
    names = names_in(start)
    for one in ast.walk(start):  # except those it sets, such as the best so far
        kept = names_in(one, ast.Store)
        names = [name for name in names if name not in kept]
    return names


def is_of_training(source, file, found, seen):
    """Return whether statements contain training passes and no evaluation's."""

    def within(place):
        name, _, number = (place or "").rpartition(":")
        return name == file and source.at(int(number)) in found

    blocks = source.block
    made = {(blocks[one], name) for one in found for name in names_in(one, ast.Store)}
    for one in blocks:  # calls of a list or an average that they made
        call = getattr(one, "value", None) if isinstance(one, ast.Expr) else None
        owners = names_in(call.func) if isinstance(call, ast.Call) else []
        if any((blocks[one], name) in made for name in owners):
            found = [*found, one, *source.back(one, names_in(one))]
    passes = [one for one in seen.of("pass") if within(one["line"])]
    called = [one for one in passes if within(one["caller"])] or passes
    return {one["grad"] and one["training"] for one in called} == {True}


def unused(source, file, seen):
    """Yield the statements of collectives whose result, or changed copy, is lost."""
    for event in seen.of("collective_call"):
        place, _, number = (event["line"] or "").rpartition(":")
        one = source.at(int(number)) if place == file else None
        call = one.value if isinstance(one, ast.Expr) else None
        if isinstance(call, ast.Call) and called(call) == event["name"] and call.args:
            copied = re.search(COPIED, ast.unparse(call.args[0]))
            copied = copied and event["name"] in ("all_reduce", "broadcast")
            if copied or (event["joins"] is True and event["by"] == event["name"]):
                yield one


def point(finding, read, seen):
    """Point a finding to where a value is set, and add where it is used.

    `read` returns a file's source, or None if there is none.
    """
    file, _, number = (finding.line or "").rpartition(":")
    text = read(file) if number else None
    if text is None:
        return
    source = Source(text)
    if finding.name in ("exchange", "gradient", "weights"):
        for lost in unused(source, file, seen):
            follow = [one for one in finding.details if one.startswith("consequence")]
            finding.line, finding.fix = f"{file}:{lost.lineno}", USE
            finding.details[1:] = [UNUSED.format(called(lost.value)), *follow]
            return
    start = source.at(int(number))
    first = None
    if finding.cause:
        last = 10**9 if finding.cause == "rate" else int(number)
        first = source.latest(CAUSES[finding.cause], last)
        start = first if first and finding.cause == "rate" else start
    origin = RULES[finding.name].origin
    if origin is not None and start:
        found = source.back(start, names_of(finding, start))
        if finding.name == "printed" and is_of_training(source, file, found, seen):
            finding.level = "LOOK"
        first = source.to_look_at(origin, start, found)
        if finding.name == "printed":
            parts = [one for one in found if re.search(SHARDED, head(one))]
            first = parts[0] if parts else first
            finding.fix = WHOLE if parts else finding.fix
        rest = [one for one in found if re.search(BY_RANK, head(one))]
        if first and rest[:1] not in ([], [first]):
            finding.details.append(f"depends on the rank at {file}:{rest[0].lineno}")
    word = re.search(CALLS, finding.fix or "")
    there = word and source.latest(rf"\b{word[0]}\(", 10**9)
    if there and finding.line != f"{file}:{there.lineno}":
        finding.fix += f" ({word[0]} at {file}:{there.lineno} is not enough)"
    if first and first.lineno != int(number):
        finding.line = f"{file}:{first.lineno}"
        finding.details.append(f"seen at {file}:{number}")
