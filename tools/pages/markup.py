"""Convert the pages' Markdown to HTML for use on other pages, and fill templates."""

import os
import re
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader
from markdown_it import MarkdownIt
from markupsafe import Markup

from tools.run import palette
from tools.run.stages import ROOT

LINK = re.compile(r'href="(?!https?:|#)([^"]+)"')
VIEW = ROOT / "tools" / "pages" / "view"
TEMPLATES = Environment(
    loader=FileSystemLoader([VIEW, VIEW.with_name("templates"), ROOT / "tools/site"]),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
)
HERE = "repo-file:"  # prefix of links to files until `linked` resolves them


def html(markdown, page_folder=ROOT):
    """Return Markdown as HTML, with links for `linked` to resolve."""

    def in_repository(found):
        path = os.path.relpath(page_folder / found[1], ROOT)
        return f'href="{HERE}{path}"'

    text = MarkdownIt().enable("table").render(markdown)
    text = LINK.sub(in_repository, text)
    return Markup(re.sub(r"\[\^\w+\]", "", text))  # footnotes stay on their page


def inline(markdown):
    """Return a line of Markdown as HTML."""
    typographic = MarkdownIt(options_update={"typographer": True}).enable("smartquotes")
    return Markup(typographic.renderInline(markdown))


def linked(text, root, suffix):
    """Return HTML with its links to the repository's files resolved for a page.

    `root` is the path from that page to the repository's root. Linked pages end in
    `suffix`, .md or .html.
    """

    def way(found):
        return root + re.sub(r"\.md(?=#|$)", suffix, found[1])

    return re.sub(HERE + r'([^"\\]*)', way, text)


ICON = (VIEW / "favicon.svg").read_text().strip()
TEMPLATES.filters["markdown"] = html
TEMPLATES.globals["icon"] = f"data:image/svg+xml,{quote(ICON)}"
TEMPLATES.globals["palette"] = Markup(palette.switchable())
