"""The ideas of a diff: a stage's page groups the diff's hunks and explains each group.

Only the page contains the order, titles and reasons of these groups. Its generated
parts of kind `hunk` show the mechanism, those of kind `plumbing` code that every script
needs.
"""

from typing import NamedTuple

from tools.run.parts import parts
from tools.run.stages import folder


class Idea(NamedTuple):
    """Hunks of a diff that belong together, and why they are there."""

    title: str  # Markdown
    numbers: list  # of the hunks, from 1
    shown: str  # the part of the page that shows the hunks
    text: str  # why they are there, Markdown
    is_plumbing: bool


def ideas(a, b):
    """Return the ideas of the diff from `a` to `b`, in the order of `b`'s page.

    Plumbing comes last. Returns an empty list if the page does not explain this diff.
    """
    every = []
    for page in sorted(folder(b).glob("*.md")):
        every += parts(page.read_text())
    found = []
    for part in every:
        if part.kind in ("hunk", "plumbing") and part.arguments[:2] == [a, b]:
            numbers = [int(number) for number in part.arguments[2:]]
            is_plumbing = part.kind == "plumbing"
            idea = Idea(part.title, numbers, part.shown, part.reason, is_plumbing)
            found.append(idea)
    return sorted(found, key=lambda idea: idea.is_plumbing)
