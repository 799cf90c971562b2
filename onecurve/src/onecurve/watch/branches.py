"""Find rank-dependent code, the values used there, and decisions based on numbers."""

import ast
import re

ASKS = "rank", "main", "master", "primary", "gpu"  # in conditions and function names
VALUES = ast.Name, ast.Attribute, ast.Subscript
ALLOWED = *VALUES, ast.Constant, ast.BinOp, ast.operator, ast.UnaryOp, ast.unaryop
ALLOWED += ast.Compare, ast.cmpop, ast.BoolOp, ast.boolop, ast.Call, ast.expr_context
ALLOWED += ast.Set, ast.Tuple, ast.List  # rank in (-1, 0)
# Decorators of one-rank functions, and the condition recorded for their calls.
KEPT = "rank_?(zero|0)|(main|master|primary)_?(process|only|rank)|on_?(main|master)"
OF_ONE = "0 == rank"
PRINTS = re.compile(r"(accelerator|fabric)\.print$")  # libraries' print on one rank
DECIDES = "decides"  # instead of a condition, if a comparison stops, saves or keeps
COMPARES = "compares"  # the same for any other comparison
ALIKE = ast.Is, ast.IsNot, ast.Eq, ast.NotEq  # with an object, or a rare number
LOGS = "log|add_|write|dump|print"  # in methods of a log
NUMBERS = "item", "len", "float", "get_world_size"  # calls that return one
ACTS = "save|step|stop|checkpoint"  # in functions called after a decision
KEEPS = r"best|stop|patience|\blr\b"  # in names that store a decision


def asks(text):
    """Return whether a condition or a function's name refers to the rank."""
    return any(word in text.lower() for word in ASKS)


def harmless(node):
    """Return whether an expression can be evaluated without side effects."""
    for one in ast.walk(node):
        if not isinstance(one, ALLOWED):
            return False
        if isinstance(one, ast.Call):
            name = getattr(one.func, "id", getattr(one.func, "attr", ""))
            if name not in NUMBERS and not asks(name):
                return False
    return True


def values_in(body):
    """Return {value that statements use: line}, except those they set or return."""
    made = set()
    used = {}
    parts = set()  # operands: a sum or quotient counts as a whole
    for statement in body:
        keeps = isinstance(statement, ast.Assign)
        keeps = keeps and isinstance(statement.targets[0], ast.Attribute)
        for node in ast.walk(statement):
            computes = isinstance(node, ast.BinOp) and harmless(node) and not keeps
            if computes:
                parts.update(one for one in ast.walk(node) if one is not node)
            is_value = computes or isinstance(node, VALUES)
            if isinstance(statement, ast.Return) or not is_value or node in parts:
                continue
            if isinstance(getattr(node, "ctx", None), ast.Store):
                made.add(ast.unparse(node))
            elif harmless(node):
                used.setdefault(ast.unparse(node), node.lineno)  # in order
    return {text: line for text, line in used.items() if text not in made}


def branches(text):
    """Return {line: [(condition, values_in)]} of what some ranks execute.

    For an `if`: its body, and what follows if the body returns or continues. For a call
    of a one-rank function: that line, under OF_ONE. Under DECIDES or COMPARES: numbers.
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
                parts += [(kind, [ast.Expr(by)]) for kind, by in decided_by(one)]
                values = [(asked, values_in(to)) for asked, to in parts]
                found.setdefault(one.lineno, []).extend(values)
    return {line: parts for line, parts in found.items() if parts}


def parts_of(statement, rest, of_one):
    """Return [(condition, statements)] that a statement restricts to some ranks.

    `rest` is what follows it; `of_one` is the names of one-rank functions.
    """
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        prints = PRINTS.search(ast.unparse(statement.value.func))
        kept = prints or called(statement.value) in of_one
        return [(OF_ONE, [statement])] if kept else []
    if not isinstance(statement, ast.If) or not harmless(statement.test):
        return []
    condition = ast.unparse(statement.test)
    if not asks(condition) and not guards_log(statement):
        return []
    parts = [(condition, statement.body)]
    if isinstance(statement.body[-1], ast.Return | ast.Continue):
        parts.append((f"not ({condition})", rest))
    return parts


def guards_log(statement):
    """Return whether an `if` asks for a log that it then writes, or None."""
    test = statement.test
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.IsNot):
        test = test.left
    own = rf"{re.escape(ast.unparse(test))}\.\w*({LOGS})\w*\("
    is_value = isinstance(test, VALUES)
    return is_value and any(re.search(own, ast.unparse(one)) for one in statement.body)


def decided_by(statement):
    """Return [(DECIDES or COMPARES, expression)] if a statement compares, else []."""
    if isinstance(statement, ast.Assign):
        names = " ".join(ast.unparse(target) for target in statement.targets)
        keeps = re.search(KEEPS, names) and compares(statement.value)
        return [(DECIDES, statement.value)] if keeps else []
    if not isinstance(statement, ast.If) or not compares(statement.test):
        return []
    tested = [ast.unparse(one) for one in ast.walk(statement.test)]
    for one in statement.body:
        for node in ast.walk(one):
            stored = isinstance(getattr(node, "ctx", None), ast.Store)
            name = ast.unparse(node) if stored else ""
            keeps = name and (name in tested or re.search(KEEPS, name))
            acts = isinstance(node, ast.Call) and re.search(ACTS, called(node))
            if keeps or acts or isinstance(node, ast.Break):
                return [(DECIDES, statement.test)]
    return [(COMPARES, statement.test)]


def compares(expression):
    """Return whether an expression compares values or takes a maximum or minimum."""
    for node in ast.walk(expression):
        if isinstance(node, ast.Call) and called(node) in ("max", "min"):
            return True
        if isinstance(node, ast.Compare):
            return not all(isinstance(one, ALIKE) for one in node.ops)
    return False


def called(node):
    """Return the last part of a called name, such as "step"."""
    return ast.unparse(node.func).rpartition(".")[2]
