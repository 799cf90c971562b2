"""Promise: a run that hangs prints what 04_ddp/HANGS.md shows of it."""

import re

from markdown_it import MarkdownIt

from tools.pages import hangs


def shown():
    """Return the lines of output that the page shows."""
    lines = []
    for token in MarkdownIt().parse(hangs.PAGE.read_text()):
        if token.type == "fence" and token.info == "console":
            lines += [line for line in token.content.splitlines() if line[0] != "$"]
    return [line for line in lines if line != "…"]


def pattern(line):
    """Return what a line of output matches that the page shows so.

    Numbers are of a line, a time or a process: any will do. … stands for anything.
    """
    return re.sub(r"\d+", r"\\d+", re.escape(line)).replace("…", ".*")


def test_each_line_is_printed_by_a_run():
    printed = "\n".join(hangs.outputs())
    lines = shown()
    assert len(lines) >= 15
    missing = [line for line in lines if not re.search(pattern(line), printed)]
    assert missing == [], "run: python -m tools.pages.hangs"
