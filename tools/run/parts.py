"""Parse a page's generated parts: `<!-- generated: NAME -->`, text, `<!-- end -->`.

NAME is a kind and its arguments, sometimes followed by ` | ` and a title.
"""

import re
from typing import NamedTuple

PART = re.compile(r"<!-- generated: (.+?) -->\n(.*?)<!-- end -->\n?", re.DOTALL)
END_OF_REASON = re.compile(r"^<!-- generated|^##+ |^</?details>", re.MULTILINE)


class Part(NamedTuple):
    """A generated part of a page."""

    name: str
    kind: str
    arguments: list
    title: str
    shown: str  # the generated content
    whole: str  # the same with both markers
    reason: str  # the prose below it, up to the next part, heading or fold edge


def parts(page):
    """Return the generated parts of a page."""
    found = []
    for match in PART.finditer(page):
        name, shown = match.groups()
        words, _, title = name.partition(" | ")
        kind, *arguments = words.split()
        below = page[match.end() :]
        end = END_OF_REASON.search(below)
        reason = below[: end.start()] if end else below
        whole = match[0].rstrip("\n")
        found.append(Part(name, kind, arguments, title, shown, whole, reason.strip()))
    return found
