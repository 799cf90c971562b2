"""Which room of tools/ imports which, as the picture in CONTRIBUTING.md shows it."""

import ast
from importlib.util import resolve_name

from tools.run.stages import ROOT

ROOMS = ["pages", "bench", "lab", "run"]  # each may import those after it


def modules(room):
    """Return the paths of a room's modules, sorted, without its __init__.py."""
    return sorted((ROOT / "tools" / room).glob("[!_]*.py"))


def imported(path):
    """Return the names that a module imports, whole, as in `tools.run.stages.ROOT`.

    Those that only a function of it imports are among them.
    """
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            relative = "." * node.level + (node.module or "")
            package = resolve_name(relative, f"tools.{path.parent.name}")
            names |= {f"{package}.{alias.name}" for alias in node.names}
    return names


def arrows():
    """Return which room imports which other, as a set of (room, imported room)."""
    return {
        (room, other)
        for room in ROOMS
        for path in modules(room)
        for other in ROOMS
        if other != room
        and any(name.startswith(f"tools.{other}") for name in imported(path))
    }


def flowchart():
    """Return the rooms, their modules and the imports between rooms, for mermaid."""
    lines = ["```mermaid", "flowchart LR"]
    for room in ROOMS:
        names = "<br>".join(path.stem for path in modules(room))
        lines += [f"  subgraph {room}", f'    {room}-modules["{names}"]', "  end"]
    lines += [f"  {room} --> {other}" for room, other in sorted(arrows())]
    return "\n".join([*lines, "```"])
