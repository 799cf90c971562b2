"""What the site adds to the pages while Sphinx reads them."""

import re
import shutil
from pathlib import Path

from tools.lab.exercise import find_exercise
from tools.pages import essence, side_by_side
from tools.pages.markup import linked
from tools.run.stages import (
    EVERY,
    ROOT,
    previous,
)
from tools.site import calculator, playground
from tools.site.contents import LISTS, contents, toctree

PART = re.compile(
    r"<!-- generated: (\w+ (\S+) (\S+) (\d+)[\d ]* \| .+?|essence) -->\n(.*?)"
    r"```diff\n.*?\n```(?=.*?<!-- end -->)",
    re.DOTALL,
)
EMPTY = re.compile(r'<th class="(head[^"]*)"><p></p></th>')  # the head of no column
FOLD = re.compile(r"<details>.*?</details>", re.DOTALL)
CALCULATED = """
Choose, and see for each way to cut how long a step takes, from full overlap to none,
how much of it GPUs compute or wait for messages, and what fills a GPU: its state, the
activations that checkpointing keeps, and those that it computes again. The red line is
at 141 GB.
"""
ASIDES = {"sidebar-drawer": "Pages", "toc-drawer": "On this page"}
SKIP = re.compile(r'<a class="skip-to-content.*?</a>', re.DOTALL)


def up_from(page):
    """Return the way from a page's folder to the root, such as ../../"""
    return "../" * len(Path(page).parent.parts)


def raw(page, html):
    """Return HTML as Markdown that Sphinx leaves as it is, its links as of a page."""
    html = linked(html, up_from(page), ".html")
    return f"\n````{{raw}} html\n{html}\n````\n"


def scripts(page, stages):
    """Return what the switches of some stages' diffs need, for the end of a page."""
    tags = [f"<script>{side_by_side.data(stages)}</script>"]
    for name in side_by_side.SCRIPTS:
        way = f"{up_from(page)}_static/{name}"
        tags.append(f'<script defer src="{way}"></script>')
    return "\n".join(tags)


def with_views(page, text):
    """Return a page's text with its diffs drawn in two columns, with switches."""
    stages = set()

    def drawn(found):
        name, a, b, number, before = found.groups()
        head = f"<!-- generated: {name} -->\n"
        if name == "essence":
            stages.add(essence.PAIR[1])
            pair = side_by_side.pair(*essence.PAIR)
            return head + before + raw(page, side_by_side.part("essence", pair))
        stages.add(b)
        ideas = side_by_side.ideas(a, b)
        (idea,) = [one for one in ideas if int(number) in one["numbers"]]
        return head + before + raw(page, side_by_side.part("part", idea))

    text, count = PART.subn(drawn, text)
    stage = Path(page).parent.name
    if count and stage in EVERY.values():
        title, _, rest = text.partition("\n")
        pair = side_by_side.pair(previous(stage), stage)
        text = f"{title}\n{raw(page, side_by_side.part('head', pair))}\n{rest}"
    return text + raw(page, scripts(page, stages)) if count else text


def with_step(page, text):
    """Return a lesson's text with a figure that moves before the still picture."""
    body = playground.draw("lesson.html", f"{up_from(page)}_static/")
    picture = re.search(r"!\[[^\]]*\]\([^)]*/step\.svg\)", text)
    return f"{text[: picture.start()]}{raw(page, body)}\n{text[picture.start() :]}"


def with_exercise(page, text):
    """Return an exercise's page with its commands, and what it breaks in a fold."""
    exercise = find_exercise(Path(page).name.partition("_")[0])
    number = exercise.number
    head, _, rest = text.partition("\n## ")
    commands = f"```sh\nmake exercise E={number}\nmake try\nmake check\nmake hint\n```"
    change = (exercise.folder / "start.patch").read_text()
    fold = [
        "## What was changed in the stage",
        "<details><summary>This gives the mistake away</summary>",
        f"```diff\n{change}```",
        "</details>",
    ]
    parts = [head, commands, "", f"## {rest}", "", "\n\n".join(fold)]
    return "\n".join(parts)


def with_folds(text):
    """Return a page's text with bold titles in its folds: a heading would end them."""

    def bold(fold):
        return re.sub(r"^###+ (.+)$", r"**\1**", fold[0], flags=re.MULTILINE)

    return FOLD.sub(bold, text)


def with_targets(text):
    """Return a page's text with its HTML anchors as targets that Sphinx can link to."""
    return re.sub(r'<a id="([^"]+)"></a>', r"(\1)=", text)


def add(app, page, source):
    """Sphinx's event `source-read`: change the text of a page, source[0]."""
    if page.startswith("notebooks/"):
        return
    text = with_targets(with_views(page, with_folds(source[0])))
    if page == "README":  # whose picture is the page itself
        text = re.sub(r"\n!\[[^\]]*\]\([^)]*/hero\.svg\)\n", "", text) + contents()
    if page == "tools/site/playground":
        body = playground.draw("body.html", f"{up_from(page)}_static/")
        text = text.replace("<!-- the playground -->", raw(page, body))
    if page == "tools/site/side_by_side":
        pairs = side_by_side.part("full", side_by_side.pairs())
        text += raw(page, pairs) + raw(page, scripts(page, EVERY.values()))
    if page == "docs/SCALING":
        body = raw(page, calculator.calculator(f"{up_from(page)}_static/"))
        title, first, rest = text.split("\n\n", 2)
        text = "\n\n".join([title, first, f"{CALCULATED}{body}", rest])
        ring = raw(page, calculator.ring(f"{up_from(page)}_static/"))
        text = text.replace("\n```text\n", f"\n{ring}\n```text\n", 1)
    if page == "04_ddp/README":
        text = with_step(page, text)
    if page in LISTS:
        text += toctree(LISTS[page], [":glob:"])
    if re.match(r"exercises/\d", page):
        text = with_exercise(page, text)
    source[0] = text


def mend(path):
    """Mend a page for a keyboard, a screen reader and a search; show no local path."""
    text = path.read_text()
    text = text.replace('role="heading">', 'role="heading" aria-level="2">')
    for name, label in ASIDES.items():
        text = text.replace(
            f'<aside class="{name}', f'<aside aria-label="{label}" class="{name}'
        )
    skip = SKIP.search(text)
    if skip and '<nav class="top"' in text:  # the first page's, which comes first
        text = text.replace(skip[0], "").replace(
            '<nav class="top"', f'{skip[0]}<nav class="top"'
        )
    found = '<div id="search-results">'
    text = text.replace(found, f"<h1>Search</h1>{found}")
    text = EMPTY.sub(r'<td class="\1"></td>', text)
    text = text.replace(f"{ROOT}/", "").replace(str(ROOT), "(where you cloned it)")
    path.write_text(text.replace("<pre>", '<pre tabindex="0">'))  # it may scroll


def finish(app, error):
    """Sphinx's event `build-finished`: mend its pages, and add those of one file."""
    if error is None and app.builder.name == "html":
        out = Path(app.outdir)
        for path in out.rglob("*.html"):
            mend(path)
        (out / "_static" / "digits.js").write_text(playground.digits())
        shutil.copy(out / "README.html", out / "index.html")
