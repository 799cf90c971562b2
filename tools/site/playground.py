"""Write the playground, one HTML page that trains stage 4: `make playground`.

The page needs no network or server. Its parts are in playground/: training.js trains,
playground.js is the page around it. The lines of code come from the scripts, the
mistakes from switches.diff, and the limits of the verdict from `make compare`.
"""

import base64
import gzip
import json
import re
from pathlib import Path

from jinja2 import FileSystemLoader
from markupsafe import Markup

from tools.pages.markup import TEMPLATES, VIEW, inline
from tools.pages.switches import SWITCHES as ALL_SWITCHES
from tools.pages.switches import without
from tools.run import compare, diffs
from tools.run.stages import ROOT, save_page

PARTS = Path(__file__).with_name("playground")
PAIR = "02_single_gpu", "04_ddp"
# A switch's name in training.js, a pattern for its lines in the diff, and its name in
# switches.diff
SWITCHES = [
    ("sampler", r"  sampler = |^-    loader = DataLoader", "DistributedSampler"),
    ("batch_size", r"^\+    loader = ", "// world_size"),
    ("seed", None, "seed"),
    ("ddp", "ddp_model = ", "the wrapper"),
    ("init_sync", "ddp_model = ", "init_sync"),
    ("set_epoch", "manual_seed|set_epoch", "set_epoch"),
    ("all_reduce", "totals", "all_reduce"),
]
LEFT_OUT = {row["name"]: row for row in ALL_SWITCHES if row["stage"] == PAIR[1]}


def switch(name, marks, row):
    """Return the page's data of a row of SWITCHES.

    Its lines are (kind, sign, line): lines of the diff, or a line that both stages
    have, and the lines that replace them.
    """
    left = LEFT_OUT[row]
    gone = without(PAIR[1], left["edits"])
    stage = diffs.lines(PAIR[1])
    out = [stage[number].strip() for number in gone["struck"]]
    lines = []
    for hunk in diffs.hunks(*PAIR):
        for line in hunk.changed():
            if marks and re.search(marks, line):
                lines.append((line[0], line[1:].strip()))
    shown = []
    for sign, line in lines or [(" ", line) for line in out]:
        kind = {"-": "old", "+": "new", " ": "same"}[sign]
        shown.append((f"{kind} out" if line in out else kind, sign, line))
    for line in gone["instead"].splitlines():
        shown.append(("mistake", "!", line.strip()))
    title = inline(left["title"])
    return {"name": name, "title": title, "lines": shown, "says": inline(left["says"])}


def digits():
    """Return JavaScript with data/sample's pixels and labels: training, then test."""
    raw = ROOT / "data" / "sample" / "MNIST" / "raw"
    parts = []
    for name in "train", "t10k":
        parts.append((raw / f"{name}-images-idx3-ubyte").read_bytes()[16:])
        parts.append((raw / f"{name}-labels-idx1-ubyte").read_bytes()[8:])
    packed = base64.b64encode(gzip.compress(b"".join(parts), mtime=0)).decode()
    return f'const DIGITS = "{packed}";'


def draw(name, source=""):
    """Return a page or a part of one, playground/`name`, as HTML.

    `source` is the folder of digits.js. If it is empty, the HTML contains the digits.
    """
    data = {
        "counts": compare.COUNTS,
        "small": compare.SMALL,
        "causes": compare.CAUSES,
    }
    script = f'<script src="{source}digits.js">' if source else f"<script>{digits()}"
    templates = TEMPLATES.overlay(loader=FileSystemLoader([PARTS, VIEW]))
    return templates.get_template(name).render(
        digits=Markup(f"{script}</script>"),
        source=source,
        scripts=["losses.js", "step.js", "playground.js"],
        switches=[switch(*row) for row in SWITCHES],
        data=Markup(json.dumps(data)),
    )


def main():
    """Write the page as one file."""
    save_page("playground.html", draw("page.html"))
