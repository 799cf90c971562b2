"""What the site adds to the pages while Sphinx reads them."""

import re
import shutil
from pathlib import Path

from tools.pages import diagrams, side_by_side
from tools.run.stages import BEYOND, EVERY, ROOT, STAGES, folder, previous
from tools.site import playground


def pages_of(stages):
    """Return the pages of stages: each one's lesson, below it its details."""
    pages = []
    for stage in stages:
        path = folder(stage).relative_to(ROOT)
        pages.append(f"{path}/README")
        if (ROOT / path / "DETAILS.md").exists():
            pages.append(f"{path}/DETAILS")
    return pages


CONTENTS = {  # caption -> the pages below it, in the table of contents
    "Begin": ["tools/site/learn", "SETUP"],
    "Six stages": pages_of(STAGES),
    "Beyond": [
        "beyond/README",
        *pages_of(BEYOND.values()),
        "beyond/own_script/README",
        "beyond/own_script/INSPECT",
        "beyond/own_script/DETAILS",
    ],
    "Look closer": [
        "tools/site/playground",
        "tools/site/side_by_side",
        "tools/site/notebooks",
        "exercises/README",
        "exercises/WORKSHOP",
    ],
    "Find help": ["SYMPTOMS", "04_ddp/HANGS", "04_ddp/CLUSTERS", "SCALING"],
    "Contribute": ["CONTRIBUTING", "exercises/AUTHORS", "data/sample/README"],
}
LISTS = {  # page -> the pages that its own table of contents holds
    "exercises/README": "[0-9]*",
    "tools/site/notebooks": "/notebooks/*",
}
FRAME = """

## The two scripts side by side

```{{raw}} html
<iframe class="diff" loading="lazy" src="{up}side_by_side.html#{a}-{b}"
  title="{a} and {b} side by side"></iframe>
```
"""


def toctree(pages, options):
    """Return a table of contents as MyST writes it."""
    return "\n".join(["", "```{toctree}", ":hidden:", *options, "", *pages, "```", ""])


def contents():
    """Return the tables of contents of the first page: the site's navigation."""
    parts = []
    for caption, pages in CONTENTS.items():
        parts.append(toctree(pages, [f":caption: {caption}"]))
    return "".join(parts)


def up_from(page):
    """Return the way from a page's folder to the root, such as ../../"""
    return "../" * len(Path(page).parent.parts)


def frame(page):
    """Return the side-by-side view of a stage's diff, '' for other pages."""
    stage = Path(page).parent.name
    is_stage = stage in EVERY.values() and Path(page).name == "README"
    if not is_stage or not previous(stage):
        return ""
    return FRAME.format(up=up_from(page), a=previous(stage), b=stage)


def labels(diagram):
    """Return the labels of a Mermaid diagram, as a text for those who do not see it."""
    found = re.findall(r'"([^"]+)"', diagram) or re.findall(r": (.+)", diagram)
    plain = [re.sub(r"<.*?>", " ", label).strip(" .…") for label in found]
    return "Diagram: " + re.sub(r"[\[\]]", "", "; ".join(dict.fromkeys(plain)))


def with_pictures(page, text):
    """Return a page's text with a picture in place of each Mermaid diagram."""

    def picture(found):
        path = diagrams.path(found[1]).relative_to(ROOT)
        return f"![{labels(found[1])}]({up_from(page)}{path})"

    return diagrams.BLOCK.sub(picture, text)


def with_targets(text):
    """Return a page's text with its HTML anchors as targets that Sphinx can link to."""
    return re.sub(r'<a id="([^"]+)"></a>', r"(\1)=", text)


def add(app, page, source):
    """Sphinx's event `source-read`: change the text of a page, source[0]."""
    if page.startswith("notebooks/"):
        return
    text = with_targets(with_pictures(page, source[0]))
    if page == "README":
        text += contents()
    if page in LISTS:
        text += toctree([LISTS[page]], [":glob:"])
    source[0] = text + frame(page)


def make_accessible(path):
    """Mend a page for readers who use a keyboard or a screen reader."""
    text = path.read_text()
    text = text.replace('role="heading">', 'role="heading" aria-level="2">')
    path.write_text(text.replace("<pre>", '<pre tabindex="0">'))  # it may scroll


def finish(app, error):
    """Sphinx's event `build-finished`: mend its pages, and write two of our own."""
    if error is None and app.builder.name == "html":
        out = Path(app.outdir)
        for path in out.rglob("*.html"):
            make_accessible(path)
        side_by_side.write(out / "side_by_side.html")
        home = '<a href="index.html">Six scripts, one loss curve</a>'
        playground.write(out / "playground.html", home)
        shutil.copy(out / "README.html", out / "index.html")
