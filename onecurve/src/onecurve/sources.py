"""Where a script gets a value from: the statements that set it, followed back.

The ranks see where a value is used, and a mistake is often where it is made: from a
name one gets to the statement that has set it, from an argument to the calls of its
function, and from a call of the script's own function to what that returns.
"""

import ast
import re

from onecurve.branches import called
from onecurve.findings import LAST, PARTS, SHOWN
from onecurve.steps import BY_HAND

MOST = 40  # statements
SYNCED = "no_sync|require_backward_grad_sync|set_requires_gradient_sync"
NORM = r"norm\(|to_local"
RATE = r"\['lr'\] \S?= "  # sets a learning rate
COMPUTES = r"\.step\(\)$|^(?!.*lambda).* (\*|//?) "  # or is done too often
LOSS = r"^(?!\w[\w.]*\.backward\()"  # more than the backward pass of a name
DIVIDES = r" (/|\*) |\.(div|mul)_?\("
PASSED_ON = r"(= |return )\w+$"
ORDERS = "randperm|permutation|shuffle"
BY_RANK = r"=.*rank\b(?!\()"
MADE = {  # by rows of findings.csv: what the statement to be looked at has
    "printed": None,  # more than a name, and a call of the script's own function
    "by_world": None,
    "decides": None,
    "gradient": LOSS,
    "added": LOSS,
    "divided": DIVIDES,
    "parts_saved": "to_local|state_dict",
    "rates": COMPUTES,
    "length": COMPUTES,
    "updates": COMPUTES,
    "statistics": r"^self\.",  # an attribute of the module is set
    "datasets": BY_RANK,
    "order": ORDERS,
    "overlap": ORDERS,
}


class Source:
    """The statements of a script, given its text."""

    def __init__(self, text):
        self.tree = ast.parse(text)
        self.block = {}  # statement -> the function, or the module, that has it
        self.functions = {}  # name -> function
        self.collect(self.tree, self.tree)

    def collect(self, node, block):
        """Add the statements below a node of a block."""
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt):
                self.block[child] = block
            is_function = isinstance(child, ast.FunctionDef)
            if is_function:
                self.functions[child.name] = child
            self.collect(child, child if is_function else block)

    def at(self, line):
        """Return the innermost statement at a line, or None."""
        found = None
        for one in self.block:
            if one.lineno <= line <= one.end_lineno:
                found = one  # an inner one comes later
        return found

    def latest(self, words, line):
        """Return the last statement up to a line that has some words, or None."""
        found = None
        for one in self.block:
            if one.lineno <= line and re.search(words, head(one)):
                found = one
        return found

    def back(self, start, names):
        """Return the statements that set names in another one, the nearest first."""
        found = []
        todo = [(start, names)]
        while todo and len(found) < MOST:
            for one in self.setters(*todo.pop(0)):
                if one is not start and one not in found:
                    found.append(one)
                    todo.append((one, names_in(one)))
        return found

    def setters(self, user, names):
        """Yield the statements that set names for another one, or return them."""
        block = self.block[user]
        for name in names:
            one = self.last_set(name, block, user.lineno)
            if one is None and name in arguments(block):
                yield from self.calls(block.name)
                continue
            one = one or self.last_set(name, self.tree, user.lineno)
            inner = [self.functions.get(name)]  # that it gives away
            if one is not None:
                yield one
                calls = [node for node in own_nodes(one) if isinstance(node, ast.Call)]
                inner = [self.functions.get(called(node)) for node in calls]
            for function in filter(None, inner):
                yield from self.returns(function)

    def last_set(self, name, block, line):
        """Return the statement that sets a name last before a line, or else first."""
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
        """Yield the statements by which a function returns, or yields, something."""
        for one in ast.walk(function):
            yields = isinstance(one, ast.Expr) and isinstance(one.value, ast.Yield)
            if yields or isinstance(one, ast.Return):
                yield one

    def to_look_at(self, name, start, found):
        """Return the one of the statements that a row of findings.csv is about."""
        for one in [start, *found] if MADE[name] else found:
            text = head(one)
            own = any(re.search(rf"\b{each}\(", text) for each in self.functions)
            passes = own or re.search(PASSED_ON, text)
            if re.search(MADE[name], text) if MADE[name] else not passes:
                return one
        return None


def head(statement):
    """Return a statement's text, without the statements that it holds."""
    return ast.unparse(statement).partition("\n")[0]


def own_nodes(statement):
    """Yield the nodes of a statement, without those of statements that it holds."""
    for child in ast.iter_child_nodes(statement):
        if not isinstance(child, ast.stmt):
            yield child
            yield from own_nodes(child)


def names_in(node, context=ast.Load):
    """Return the names in a node, and attributes of `self`: those read, or those set.

    What has an item set is set. What is called is not read.
    """
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
    """Return the names of a function's arguments, but `self`; of a module, none."""
    listed = block.args.args if isinstance(block, ast.FunctionDef) else []
    return [one.arg for one in listed if one.arg != "self"]


def names_of(finding, start):
    """Return the names that a finding is about, which a statement uses."""
    what = finding.what.partition(": ")[2]
    if finding.name == "statistics":
        return [f"self.{what}"]
    if finding.name in ("printed", "by_world"):
        return [] if what[0] == '"' else names_in(ast.parse(what, mode="eval"))
    call = getattr(start, "value", None)
    if isinstance(call, ast.Call) and called(call) == "backward" and call.args:
        return names_in(call.args[0])  # what is called is an Accelerator, say
    names = names_in(start)
    for one in ast.walk(start):  # but the best so far, say, which it sets
        kept = names_in(one, ast.Store)
        names = [name for name in names if name not in kept]
    return names


def point(finding, folder):
    """Have a finding begin with where a value is made, and say where it is used.

    `folder` has the script.
    """
    file, _, number = (finding.line or "").rpartition(":")
    if not number or not (folder / file).is_file():
        return
    source = Source((folder / file).read_text(errors="replace"))
    start = source.at(int(number))
    first = None
    if finding.repair == LAST:
        first = source.latest(SYNCED, int(number))
    elif finding.repair == PARTS:
        first = source.latest(NORM, int(number))
    elif BY_HAND in "".join(finding.details):
        first = start = source.latest(RATE, 10**9) or start
    if finding.name in MADE and start:
        found = source.back(start, names_of(finding, start))
        first = source.to_look_at(finding.name, start, found)
        rest = [one for one in found if one is not first]
        rest.sort(key=lambda one: not re.search(BY_RANK, head(one)))
        said = finding.name == "overlap" and first is start
        if first and rest and not said:
            told = ", ".join(f"{file}:{one.lineno}" for one in rest[:SHOWN])
            finding.details.append(f"depends on values set at {told}")
    if first and first.lineno != int(number):
        finding.line = f"{file}:{first.lineno}"
        finding.details.append(f"seen at {file}:{number}")
