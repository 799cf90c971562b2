"""Read and apply edits of a script, in the format of the tutorial's *.diff files.

An edit contains a name, fields and changes:

    === 11_resume/broadcast
    title: Without the broadcast
    ranks: 2 4
    -        dist.broadcast_object_list(saved)
    +        pass
    @@
     a line that stays
    +a new one after it

Lines with - are removed, lines with + are added, lines with a space stay, and @@ starts
another change. The old text must occur in the script exactly once; it may be part of a
line. Empty lines and lines starting with # are comments.
"""

import re
from typing import NamedTuple

import whatthepatch

from tools.run.stages import ROOT, script

VARIANTS = ROOT / "tests" / "beyond" / "variants"  # a patch for each variant


class Edit(NamedTuple):
    """A named edit with its fields {name: value} and changes [(old, new)]."""

    name: str
    fields: dict
    changes: list

    def apply(self, text):
        """Return a script with the changes; raises the same errors as `edit`."""
        return edit(text, *self.changes)


def edit(text, *changes):
    """Return a script with changes, (old, new) pairs, applied in order.

    Removing whole lines leaves no empty line. Raises ValueError, quoting the old text,
    if it does not occur exactly once.
    """
    for old, new in changes:
        count = text.count(old)
        if count != 1:
            raise ValueError(f"expected once, found {count} times: {old!r}")
        before, after = text.split(old)
        are_whole = before.endswith("\n") and after.startswith("\n")
        if are_whole and not new and not old.endswith("\n"):
            after = after[1:]
        text = before + new + after
    return text


def read_edits(path):
    """Return the list of edits in a file."""
    _, *parts = re.split("(?m)^=== ", path.read_text(encoding="utf-8"))
    return [parse(part) for part in parts]


def parse(part):
    """Return the Edit in one part of a file."""
    name, *lines = part.splitlines()
    fields = {}
    changes = [([], [])]
    for line in lines:
        old, new = changes[-1]
        if line == "@@":
            changes.append(([], []))
        elif line.startswith("-"):
            old.append(line[1:])
        elif line.startswith("+"):
            new.append(line[1:])
        elif line.startswith(" "):
            old.append(line[1:])
            new.append(line[1:])
        elif line and not line.startswith("#"):
            field, _, value = line.partition(": ")
            fields[field] = value
    texts = [("\n".join(old), "\n".join(new)) for old, new in changes if old or new]
    return Edit(name, fields, texts)


def patched(text, patch):
    """Return a script with a patch applied, given as a unified diff.

    Raises ValueError, naming the patch, if it does not apply.
    """
    (parsed,) = whatthepatch.parse_patch(patch)
    try:
        lines = whatthepatch.apply_diff(parsed, text)
    except whatthepatch.exceptions.WhatThePatchException as error:
        name = patch.partition("\n")[0]
        raise ValueError(f"{name} does not apply: {error}") from None
    return "\n".join(lines) + "\n"


def variant_stage(name):
    """Return the stage that a variant changes, or a stage's own name."""
    path = VARIANTS / f"{name}.patch"
    patch = path.read_text() if path.exists() else f"--- {name}/"
    return patch.removeprefix("--- ").partition("/")[0]


def variant_text(name):
    """Return a variant's script, or a stage's."""
    path = VARIANTS / f"{name}.patch"
    text = script(variant_stage(name)).read_text()
    return patched(text, path.read_text()) if path.exists() else text
