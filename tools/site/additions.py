"""What the site adds to the pages while Sphinx reads them."""

import re
import shutil
from pathlib import Path

from tools.pages import diagrams, side_by_side
from tools.run.stages import BEYOND, EVERY, STAGES, previous

ROOT = Path(__file__).resolve().parents[2]
CONTENTS = {  # caption -> the pages below it, in the table of contents
    "Begin": ["tools/site/learn", "SETUP"],
    "Six stages": [f"{stage}/README" for stage in STAGES],
    "Beyond": [
        "beyond/README",
        *(f"beyond/{stage}/README" for stage in BEYOND.values()),
        "beyond/own_script/README",
    ],
    "Look closer": [
        "tools/site/side_by_side",
        "tools/site/notebooks",
        "exercises/README",
    ],
    "Find help": ["SYMPTOMS", "04_ddp/HANGS", "04_ddp/CLUSTERS", "SCALING"],
    "Contribute": ["CONTRIBUTING", "data/sample/README"],
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
        there = [page for page in pages if (ROOT / f"{page}.md").exists()]
        parts.append(toctree(there, [f":caption: {caption}"]))
    return "".join(parts)


def frame(page):
    """Return the side-by-side view of a stage's diff, '' for other pages."""
    stage = Path(page).parent.name
    if Path(page).name != "README" or not base_of(stage):
        return ""
    up = "../" * len(Path(page).parent.parts)
    return FRAME.format(up=up, a=base_of(stage), b=stage)


def base_of(stage):
    """Return the stage that a stage's diff begins from, None where there is none."""
    if stage not in EVERY.values():
        return None
    return previous(stage)


def with_pictures(page, text):
    """Return a page's text with a picture in place of each Mermaid diagram."""
    up = "../" * len(Path(page).parent.parts)

    def picture(found):
        path = diagrams.path(found[1]).relative_to(ROOT)
        return f"![{diagrams.words(found[1])}]({up}{path})"

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
        shutil.copy(out / "README.html", out / "index.html")
