"""The site's additions to the pages, made while Sphinx reads them."""

import json
import re
import shutil
from html import unescape
from pathlib import Path

from docutils import nodes

from tools.lab.exercise import PARTS, along_the_path
from tools.pages import drawing, side_by_side
from tools.pages.markup import TEMPLATES, linked
from tools.pages.stored import FREE_GPU
from tools.pages.switches import read_outcomes
from tools.run import diffs, essence, palette
from tools.run.parts import parts
from tools.run.stages import EVERY, MNIST, ROOT, TRANSFORMER, previous
from tools.site import calculator, playground
from tools.site.contents import LISTS, UNLISTED, contents, toctree

DIFF = re.compile(r"```diff\n.*?\n```", re.DOTALL)
DIFF_TITLE = re.compile("^## The diff.*\n", re.MULTILINE)
EMPTY = re.compile(r'<th class="(head[^"]*)"><p></p></th>')  # an empty column heading
RUN = f"**Run it:** `make notebooks`, or all stages [on a free GPU]({FREE_GPU}.ipynb)."
DRAWN = re.compile(r"drawing\.(\w+)\(")  # a figure, which its function describes
HEADING = re.compile("^###+ (.+)$", re.MULTILINE)
FOLD = re.compile(r"<details>.*?</details>", re.DOTALL)
FOUND = nodes.paragraph | nodes.literal_block | nodes.row  # by a search
ANCHOR = re.compile(r'<a id="([^"]+)"></a>(?! *\|) *')  # not in a table
TAG = re.compile(r"<[^<>]+>")
SHOWN = re.compile(r'show_diff\("(\w+)"\)')
CURVE = re.compile(r'nb\.curve\(.*"(\w+)"\)')
WIDTH = re.compile(r'width="([\d.]+)pt"')  # of a picture
PHONE = "@media (max-width:400px) { text[style*=middle] { font-size:12px !important }"
PHONE += " g:has(> g:nth-child(14)) > [id^=xtick]:nth-child(even) { display:none } }"


def up_from(page):
    """Return the path from a page's folder to the root, such as ../../"""
    return "../" * len(Path(page).parent.parts)


def raw(page, html):
    """Return HTML as Markdown that Sphinx keeps unchanged, its links resolved."""
    html = linked(html, up_from(page), ".html")
    return f"\n````{{raw}} html\n{html}\n````\n"


def scripts(page, stages):
    """Return the script tags that some stages' switches need at the end of a page."""
    tags = [f"<script>{side_by_side.data(stages)}</script>"]
    for name in side_by_side.SCRIPTS:
        tags.append(f'<script defer src="{up_from(page)}_static/{name}"></script>')
    return "\n".join(tags)


def drawn_map():
    """Return a map of all scripts and exercises as HTML, with the curves' losses."""
    first = read_outcomes()["steps"]["04_ddp"]["2"]
    cliff = (ROOT / "tools/pages/svg/cliff.svg").read_text()
    (told,) = re.findall("<dc:description>(.*)</dc:description>", cliff)
    second = json.loads(unescape(told))[0][""]
    rows = []
    for losses, names in (first, MNIST), (second, TRANSFORMER):
        found = []
        for stage in names.values():
            base = previous(stage)
            count = diffs.changed_lines(base, stage) if base else 0
            found.append((stage, side_by_side.lesson(stage), count))
        rows.append((losses, found))
    page = TEMPLATES.get_template("map.html")
    return page.render(curves=rows, bugs=along_the_path(), parts=PARTS)


def with_drawing(part, drawn):
    """Return a generated part with HTML instead of its diff, or of all of it."""
    if part.kind == "stages":
        return drawn
    if part.kind == "plumbing":  # in a fold, whose summary is its title, or not
        whole = re.sub(r"\*\*.*", "", part.whole)
        return f"{whole}\n\n<details><summary>The code</summary>\n{drawn}\n</details>\n"
    before, *after = DIFF.split(part.whole)
    return before + drawn + "".join(after)


def with_views(page, text):
    """Return a page with its diffs drawn in two columns, with switches."""
    stages = set()
    for part in parts(text):
        if part.kind == "essence":
            stages.add(essence.PAIR[1])
            pair = side_by_side.pair(*essence.PAIR, is_front=True)
            drawn = side_by_side.part("essence", pair)
        elif part.kind in ("hunk", "plumbing"):
            a, b, number, *_ = part.arguments
            stages.add(b)
            ideas = side_by_side.ideas(a, b)
            (idea,) = [one for one in ideas if int(number) in one["numbers"]]
            drawn = side_by_side.part("part", idea)
        elif part.kind == "stages":
            drawn = drawn_map()
        else:
            continue
        text = text.replace(part.whole, with_drawing(part, raw(page, drawn)))
    stage = Path(page).parent.name
    if stages and stage in EVERY.values():
        pair = side_by_side.pair(previous(stage), stage)
        head = raw(page, side_by_side.part("head", pair))
        text = DIFF_TITLE.sub(lambda title: f"{title[0]}\n{head}", text, count=1)
    return text + raw(page, scripts(page, stages)) if stages else text


def with_diff(page, text, out):
    """Return a notebook, its curves first, and save its last picture in `out`."""
    notebook = json.loads(text.replace('"ipython3"', '"python3"'))  # for %%ranks cells
    title = notebook["cells"][0]["source"]
    if page != f"notebooks/{FREE_GPU}":
        title[0] = title[0].replace("# ", "# Notebook ", 1)
        title += ["\n\n", RUN]
    cells = [one for one in notebook["cells"] if one["cell_type"] == "code"]
    for cell in cells:
        if len(cell["source"]) > 9:
            cell["metadata"]["tags"] = ["hide-input"]
        if shown := SHOWN.search("".join(cell["source"])):
            pair = side_by_side.pair(previous(shown[1]), shown[1])
            summary = f"<details><summary>{pair['count']} changed lines</summary>"
            rest = side_by_side.part("rest", pair)
            ideas = f'{summary}<div class="sbs">{rest}</div></details>'
            html = linked(ideas, up_from(page), ".html")
            cell["outputs"][0]["data"] = {"text/html": html}
        if curve := CURVE.search("".join(cell["source"])):
            drawn = cell["outputs"].pop()
            chart = f'<div class="sbs" data-curve="{curve[1]}"></div>'
            html = linked(chart + scripts(page, [curve[1]]), up_from(page), ".html")
            drawn["data"] = {"text/html": html}
            hidden = {"id": "figure", "metadata": {"tags": ["remove-input"]}}
            notebook["cells"].insert(1, cell | hidden | {"outputs": [drawn]})
    cells[0]["metadata"]["tags"] = ["hide-cell"]
    for cell in cells:
        if called := DRAWN.search("".join(cell["source"])):
            says, _ = getattr(drawing, called[1]).__doc__.split(".", 1)
            cell["metadata"]["mystnb"] = {"image": {"alt": says.removeprefix("Draw ")}}
        for data in [one.get("data", {}) for one in cell["outputs"]]:
            if svg := "".join(data.get("image/svg+xml", "")):
                head, end, rest = palette.themed(svg).partition("</style>")
                data["image/svg+xml"] = head + PHONE + end + rest
                (out / f"{Path(page).name}.svg").write_text(head + end + rest)
                if float(WIDTH.search(svg)[1]) > 450:  # scrolls on a phone
                    cell["metadata"].setdefault("tags", []).append("wide")
    return json.dumps(notebook)


def add(app, page, source):
    """Handle Sphinx's event `source-read`: change a page's text, source[0]."""
    if page.startswith("notebooks/"):
        source[0] = with_diff(page, source[0], Path(app.outdir))
        return
    # A heading would end a fold, and Sphinx can link to a target, not to an anchor.
    text = FOLD.sub(lambda fold: HEADING.sub(r"**\1**", fold[0]), source[0])
    text = ANCHOR.sub(r"(\1)=\n  ", with_views(page, text))
    if page == "README":  # the page replaces its picture and what introduces the diff
        hero = r"\n!\[[^\]]*\]\([^)]*/hero\.svg\)\n\n[^\n]+\n"
        text = re.sub(hero, "", text) + contents()
    if page == "tools/site/notebooks":
        text = re.sub(r"\[(.*/(\d\w+)\.)", r'[<img src="../../\2.svg" alt="">\1', text)
    if page == "tools/site/playground":
        body = playground.draw("body.html", f"{up_from(page)}_static/")
        text = text.replace("<!-- the playground -->", raw(page, body))
    if page == "tools/site/side_by_side":
        pairs = side_by_side.part("full", side_by_side.pairs())
        text += raw(page, pairs) + raw(page, scripts(page, EVERY.values()))
    if page == "docs/SCALING":
        body = raw(page, calculator.calculator(f"{up_from(page)}_static/"))
        title, rest = text.split("\n\n", 1)
        text = f"{title}\n{body}\n{rest}"
    if page in UNLISTED:
        text = f"---\norphan: true\n---\n\n{text}"
    if page in LISTS:
        text += toctree(LISTS[page], [":glob:"])
    source[0] = text


def mend(path):
    """Fix a page for keyboards, screen readers and search, and remove local paths."""
    text = path.read_text().replace('role="heading">', 'role="heading" aria-level="2">')
    if path.name == "404.html":
        text = re.sub('(href|src|action)="/', r'\1="', text)
        text = text.replace('"#furo-main', '"404.html#furo-main')  # it has a base
    text = EMPTY.sub(r'<td class="\1"></td>', text)
    text = text.replace(f"{ROOT}/", "").replace(str(ROOT), "(where you cloned it)")
    path.write_text(text.replace("<pre>", '<pre tabindex="0">'))  # it may scroll


def texts(env):
    """Return the pages' titles and texts, [text, section's id and title], as JSON."""
    found = {}
    for name in env.found_docs:
        rows, code = [], []  # prose is found first
        for node in env.get_doctree(name).findall():
            if isinstance(node, nodes.section):
                place = [node["ids"][0], node.next_node(nodes.title).astext()]
            elif isinstance(node, FOUND) and not isinstance(node.parent, nodes.entry):
                cells = node[:2] if isinstance(node, nodes.row) else [node]
                words = " — ".join(one.astext() for one in cells if one.astext())
                row = [" ".join(TAG.sub("", words).split()), *place]
                (rows if isinstance(node, nodes.paragraph) else code).append(row)
        found[name] = {"title": env.titles[name].astext(), "texts": rows + code}
    return json.dumps(found)


def finish(app, error):
    """Handle Sphinx's event `build-finished`: fix the pages and add generated files."""
    if error is None and app.builder.name == "html":
        out = Path(app.outdir)
        for path in out.rglob("*.html"):
            mend(path)
        (out / "_static" / "digits.js").write_text(playground.digits())
        (out / "_static" / "texts.js").write_text(f"var TEXTS = {texts(app.env)};")
        shutil.copy(out / "README.html", out / "index.html")
