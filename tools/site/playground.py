"""Write the playground, one HTML page that trains stage 4: `make playground`.

The page needs no network or server. Its parts are in playground/: training.js trains,
playground.js is the page around it. The lines of code come from the scripts, the
mistakes from switches.diff, and the limits of the verdict from `make compare`.
"""

import base64
import gzip
import json
from pathlib import Path

from jinja2 import FileSystemLoader
from markupsafe import Markup

from tools.pages.markup import TEMPLATES, VIEW, inline
from tools.pages.switches import SWITCHES as ALL_SWITCHES
from tools.pages.switches import read_outcomes, without
from tools.run import diffs
from tools.run.stages import ROOT, save_page

PARTS = Path(__file__).with_name("playground")
STAGE = "04_ddp"
SWITCHES = {  # a switch's name in training.js -> its name in switches.diff
    "set_epoch": "set_epoch",
    "sampler": "DistributedSampler",
    "batch_size": "// world_size",
    "ddp": "the wrapper",
    "init_sync": "init_sync",
    "seed": "seed",
    "all_reduce": "all_reduce",
}
RECORDED = read_outcomes()
LEFT_OUT = {row["name"]: row for row in ALL_SWITCHES if row["stage"] == STAGE}


def switch(name):
    """Return the page's data of one of SWITCHES: the lines it removes and adds."""
    left = LEFT_OUT[SWITCHES[name]]
    gone = without(STAGE, left["edits"])
    stage = diffs.lines(STAGE)
    one = {"name": name, "title": inline(left["title"]), "says": inline(left["says"])}
    one["out"] = [stage[number].split("  #")[0].strip() for number in gone["struck"]]
    return one | {"instead": [line.strip() for line in gone["instead"].splitlines()]}


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
    recorded = {"rows": "right", "steps": "steps"}
    data = {part: RECORDED[of]["01_cpu"]["1"] for part, of in recorded.items()}
    script = f'<script src="{source}digits.js">' if source else f"<script>{digits()}"
    templates = TEMPLATES.overlay(loader=FileSystemLoader([PARTS, VIEW]))
    return templates.get_template(name).render(
        digits=Markup(f"{script}</script>"),
        source=source,
        scripts=["losses.js", "step.js", "playground.js"],
        switches=list(map(switch, SWITCHES)),
        data=Markup(json.dumps(data)),
    )


def main():
    """Write the page as one file."""
    save_page("playground.html", draw("page.html"))
