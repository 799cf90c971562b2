"""Read the versions of a script, each with one bug, and write them.

An edit is {place: text}, and the text gets the place's indentation. `"7"` or `"7-9"` is
replaced (or deleted if the text is empty). `"7+"` inserts after line 7, `"-7"` before
it. `"model.py:7"` is a line of that file. Line numbers refer to the original, whose
files must match `digests`. So this repository stores no line of another's script.
"""

import ast
import hashlib
import shutil
import textwrap
from dataclasses import dataclass, field

try:
    import tomllib
except ModuleNotFoundError:  # before Python 3.11
    import tomli as tomllib


@dataclass
class Version:
    """A script with one bug and its key; by default without a bug."""

    name: str
    mistake: str = ""  # the change
    lines: list = field(default_factory=list)  # a report should point to one of them
    cause: str = ""  # what goes wrong
    accept: str = ""  # causes that a report may state, separated by " | "
    not_ok: list = field(default_factory=list)  # what a report must not call ok
    edits: dict = field(default_factory=dict)  # {place: text}


def read(path):
    """Return a TOML file's facts about a script, a dict, and its Versions.

    Raises TypeError if a key has an unknown field, and ValueError if one is empty.
    """
    case = tomllib.loads(path.read_text())
    found = [Version(**facts) for facts in case.pop("version", [])]
    for version in found:
        if not all(vars(version).values()):
            raise ValueError(f"{path}: the key of version {version.name} is incomplete")
    return case, found


def write(script, digests, edits, folder):
    """Copy a script's folder into `folder` and edit its files.

    Returns the script's new path and {original line: its new places, a list of
    "FILE:LINE"}. Raises ValueError if a file differs from the original.
    """
    copy = folder / script.parent.name
    shutil.copytree(script.parent, copy, symlinks=True, ignore_dangling_symlinks=True)
    places = {}
    for file, digest in digests.items():
        text = (copy / file).read_text()
        if hashlib.sha256(text.encode()).hexdigest()[:16] != digest:
            raise ValueError(f"{script.parent / file} is not the original")
        mine = {}
        for place, new in edits.items():
            owner, _, where = place.rpartition(":")
            if (owner or script.name) == file:
                mine[where] = new
        lines, now = edited(text.splitlines(), mine)
        (copy / file).write_text("\n".join(lines) + "\n")
        for number, numbers in now.items():
            places[f"{file}:{number}"] = [f"{file}:{one}" for one in numbers]
            if file == script.name:
                places[str(number)] = places[f"{file}:{number}"]
    return copy / script.name, places


def edited(lines, edits):
    """Return the edited lines and {old line number: its new numbers}.

    Each line of a replaced range maps to all of the new lines.
    """
    pieces = {number: [line] for number, line in enumerate(lines, 1)}
    first_of = {number: number for number in pieces}  # of its replaced range
    for where, new in edits.items():
        first, _, last = where.strip("+").removeprefix("-").partition("-")
        first, last = int(first), int(last or first)
        line = lines[first - 1]
        indent = line[: len(line) - len(line.lstrip())]
        ours = textwrap.indent(textwrap.dedent(new).strip("\n"), indent).splitlines()
        if where.endswith("+"):
            pieces[first] = pieces[first] + ours
        elif where.startswith("-"):
            pieces[first] = ours + pieces[first]
        else:
            whole = range(first, last + 1)
            pieces.update({number: [] for number in whole} | {first: ours})
            first_of.update(dict.fromkeys(whole, first))
    done = []
    now = {}
    for number, piece in pieces.items():
        now[number] = range(len(done) + 1, len(done) + len(piece) + 1)
        done += piece
    return done, {number: now[first] for number, first in first_of.items()}


def key_lines(version, places, folder):
    """Return the lines that a finding may name, {"FILE:LINE"}; none if all are gone.

    A finding names a statement's first line, and a key any of its lines, so these are
    all lines of each simple statement. FILE has no folder, as in a finding. Raises
    KeyError if the original has no such line.
    """
    found = {place for line in version.lines for place in places[line]}
    for file in {place.rpartition(":")[0] for place in found}:
        for node in ast.walk(ast.parse((folder / file).read_text())):
            if isinstance(node, ast.stmt) and not hasattr(node, "body"):
                whole = range(node.lineno, node.end_lineno + 1)
                whole = {f"{file}:{number}" for number in whole}
                found |= whole if whole & found else set()
    return {place.rpartition("/")[2] for place in found}
