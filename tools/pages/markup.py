"""Markdown of the pages as HTML, on a page elsewhere."""

import os
import re

from markdown_it import MarkdownIt
from markupsafe import Markup

from tools.run.stages import ROOT

LINK = re.compile(r'href="(?!https?:|#)([^"]+)"')
HERE = "repo-file:"  # how a link to a file begins until `linked` knows the way there


def html(markdown, page_folder=ROOT):
    """Return Markdown as HTML whose links are to be `linked`."""

    def in_repository(found):
        path = os.path.relpath(page_folder / found[1], ROOT)
        return f'href="{HERE}{path}"'

    text = MarkdownIt().enable("table").render(markdown)
    text = LINK.sub(in_repository, text)
    return Markup(re.sub(r"\[\^\w+\]", "", text))  # footnotes stay on their page


def inline(markdown):
    """Return a line of Markdown as HTML."""
    return Markup(MarkdownIt().renderInline(markdown))


def linked(text, root, suffix):
    """Return HTML with links that lead from a page to files of the repository.

    `root` is the way from that page to the repository's root. Its pages end in `suffix`
    there, .md or .html.
    """

    def way(found):
        return root + re.sub(r"\.md(?=#|$)", suffix, found[1])

    return re.sub(HERE + r'([^"\\]*)', way, text)
