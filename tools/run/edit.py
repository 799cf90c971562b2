"""Edits of a script: one format and one reader for all files *.diff of the tutorial.

An edit has a name, fields, and changes:

    === 11_resume/broadcast
    title: Without the broadcast
    ranks: 2 4
    -        dist.broadcast_object_list(saved)
    +        pass
    @@
     a line that stays
    +a new one after it

A line with - goes, one with + comes, one with a space stays, and @@ begins another
change. What goes and what stays is in the script exactly once; it may be a part of a
line. Empty lines, and those that begin with #, are for the reader.
"""

import re
from typing import NamedTuple

import whatthepatch


class Edit(NamedTuple):
    """A named edit: its fields {name: text}, and its changes [(old, new)]."""

    name: str
    fields: dict
    changes: list

    def apply(self, text):
        """Return a text with the changes; raises what `edit` does."""
        return edit(text, *self.changes)


def edit(text, *changes):
    """Return a text with changes, pairs (old, new), made one after the other.

    Where nothing comes instead of whole lines, no empty line stays behind. Raises
    ValueError, which names the old text, where it is not there exactly once.
    """
    for old, new in changes:
        count = text.count(old)
        if count != 1:
            raise ValueError(f"not once, but {count} times in the text: {old!r}")
        before, after = text.split(old)
        are_whole = before.endswith("\n") and after.startswith("\n")
        if are_whole and not new and not old.endswith("\n"):
            after = after[1:]
        text = before + new + after
    return text


def read_edits(path):
    """Return the edits in a file, a list."""
    _, *parts = re.split("(?m)^=== ", path.read_text(encoding="utf-8"))
    return [parse(part) for part in parts]


def parse(part):
    """Return the Edit that a part of a file describes."""
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
    """Return a text with a patch, the text of a unified diff.

    Raises ValueError, which names the patch, where it does not apply.
    """
    (parsed,) = whatthepatch.parse_patch(patch)
    try:
        lines = whatthepatch.apply_diff(parsed, text)
    except whatthepatch.exceptions.WhatThePatchException as error:
        name = patch.partition("\n")[0]
        raise ValueError(f"{name} does not apply: {error}") from None
    return "\n".join(lines) + "\n"
