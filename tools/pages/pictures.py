"""Draw the pictures of the pages, svg/*.svg: `python -m tools.pages.pictures`.

Each holds the data that it shows, as JSON, and the colors of the page of side_by_side
for light and for dark readers.
"""

import io
import json
import math
import re
from html import escape, unescape

import matplotlib
import torch
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from torch import nn
from torch.utils.data import DistributedSampler

from tools.bench import figures
from tools.bench.figures import BLUE, ORANGE
from tools.bench.tables import published
from tools.pages import drawing, side_by_side
from tools.pages.blocks import NUMBER, PART, reasons
from tools.pages.hunk_picture import PALETTE, draw_hunk
from tools.run import plots
from tools.run.data import SAMPLE, tensors
from tools.run.stages import ROOT, load

FOLDER = ROOT / "tools" / "pages" / "svg"
PAPER, INK, SOFT, LINE = (PALETTE[name][0] for name in ("paper", "ink", "soft", "line"))
STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "six scripts",
    "font.size": 10,
    "figure.facecolor": PAPER,
    "axes.facecolor": PAPER,
    "legend.facecolor": PAPER,
    "text.color": INK,
    "axes.labelcolor": INK,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "axes.edgecolor": SOFT,
    "grid.color": LINE,
    "legend.edgecolor": LINE,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
}
HUNK = "04_ddp", "05_ddp_inference", 5  # of the page of side_by_side


def curves():
    """Return the curve of each stage, as stage 1's page has them: {stage: epochs}."""
    parts = dict(PART.findall((ROOT / "01_cpu" / "README.md").read_text()))
    found = {}
    for line in parts["output all"].splitlines():
        start = re.match(r"(\d\d_\w+): ", line)
        epoch = re.match(r"epoch .*loss (\S+) +test (\d+)/(\d+)", line)
        if start:
            epochs = found.setdefault(start[1], [])
        elif epoch:
            epochs.append([float(epoch[1]), int(epoch[2]), int(epoch[3])])
    return found


def draw_curves(found):
    """Draw losses and test accuracy; printed digits have no distance worth a panel."""
    figure = Figure(figsize=(8.6, 3.8), layout="constrained")
    plots.draw_curves(figure.subplots(1, 2), found)
    return figure


def who_gets_what():
    """Return who sees each of 16 images in three epochs, and when: [rank, step].

    With set_epoch, then without. Two ranks, two images a step on each.
    """
    found = []
    for calls_set_epoch in True, False:
        found.append([[None] * 16 for _ in range(3)])
        for epoch, images in enumerate(found[-1]):
            for rank in range(2):
                sampler = DistributedSampler(range(16), 2, rank)
                sampler.set_epoch(epoch if calls_set_epoch else 0)
                for place, image in enumerate(sampler):
                    images[image] = [rank, place // 2 + 1]
    return found


def draw_who_gets_what(found):
    titles = "with set_epoch(epoch)", "without it, every epoch repeats the first"
    return drawing.assignments(dict(zip(titles, found, strict=True)))


def gradients():
    """Return the gradients of the last layer's ten biases: rank 0's, rank 1's, of all.

    Of the first 64 images, of which each rank has every second one.
    """
    torch.manual_seed(0)
    model = load("04_ddp").Net(128)
    found = []
    for part in slice(0, 64, 2), slice(1, 64, 2), slice(64):
        images, labels = tensors(SAMPLE)[part]
        model.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        found.append([round(g, 6) for g in model.layers[3].bias.grad.tolist()])
    return found


def draw_gradients(found):
    first, second, whole = found
    mean = [(a + b) / 2 for a, b in zip(first, second, strict=True)]
    return drawing.gradients((first, second), (mean, mean), whole)


def bubble():
    """Return how two halves work on a batch in 1, 2 and 4 micro-batches.

    For each number these are the pieces [half, pass, micro-batch, start, length]. A
    forward pass of the batch through one half is 1 long, a backward pass 2.
    """
    found = {}
    for count in 1, 2, 4:
        lengths = [1 / count, 1 / count, 2 / count, 2 / count]
        pieces = found.setdefault(str(count), [])
        for half, start, length, way, micro in drawing.schedule(lengths, count):
            pieces.append([half, way, micro, start, length])
    return found


def draw_bubble(found):
    figure = Figure(figsize=(8, 4.2), layout="constrained")
    panels = figure.subplots(3, sharex=True)
    for axes, (count, pieces) in zip(panels, found.items(), strict=True):
        end = max(start + length for *_, start, length in pieces)
        for half, way, micro, start, length in pieces:
            color = BLUE if way == "forward" else ORANGE
            axes.barh(half, length - 0.02, left=start, color=color)
            axes.text(
                start + length / 2,
                half,
                micro,
                color="#fefefe",
                weight="bold",
                ha="center",
                va="center_baseline",
            )
        busy = sum(length for *_, length in pieces) / (2 * end)
        many = "micro-batches" if int(count) > 1 else "batch, as in stage 6"
        axes.set_title(
            f"{count} {many}: each half works {busy:.0%} of the time", loc="left"
        )
        axes.set(yticks=[0, 1], yticklabels=["first half", "second half"])
        axes.invert_yaxis()
        axes.tick_params(length=0)
    axes.set_xlabel("time. Blue: forward, orange: backward; the number: micro-batch")
    return figure


def speedups():
    """Return {width: [batch, speed-up, least, most]} of the published benchmark."""
    return figures.speedups(published())


def draw_speedups(found):
    title = "Two processes on two cores: median and range; below 1 they are slower"
    return figures.draw_speedups(found, title)


def hunk():
    """Return HUNK as the page of side_by_side shows it.

    Its heading, rows (as side_by_side.rows has them), lines of both scripts as HTML by
    number, and the first paragraph of the reason.
    """
    a, b, number = HUNK
    rows = side_by_side.hunks(a, b)[number - 1]["rows"]
    lines = [
        {str(row[side]): html[row[side]] for row in rows if row[side] is not None}
        for side, html in enumerate(map(side_by_side.highlighted, (a, b)))
    ]
    reason = reasons(a, b)[number - 1]
    why = re.sub("[`*]", "", reason.text.split("\n\n")[0])
    return {
        "heading": [a, b, reason.title.replace("`", "")],
        "rows": rows,
        "lines": lines,
        "why": " ".join(why.split()),
    }


PICTURES = {  # name -> what it shows, and how that is drawn
    "side_by_side": (hunk, draw_hunk),
    "curves": (curves, draw_curves),
    "set_epoch": (who_gets_what, draw_who_gets_what),
    "gradients": (gradients, draw_gradients),
    "bubble": (bubble, draw_bubble),
    "speedup": (speedups, draw_speedups),
}


def draw(name, data):
    """Return the picture of such data as the text of its file."""
    with matplotlib.rc_context(STYLE):
        drawn = PICTURES[name][1](data)
        if not isinstance(drawn, str):
            file = io.StringIO()
            drawn.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
            plt.close(drawn)
            drawn = file.getvalue()
    drawn = re.sub(r"'DejaVu Sans'[^;\"]*", "system-ui, sans-serif", drawn)
    rules = []
    for light, other in PALETTE.values():
        for what in "fill", "stroke":
            if f"{what}: {light}" in drawn:
                rule = f"{what}: {other} !important"
                rules.append(f'[style*="{what}: {light}"] {{ {rule} }}')
    dark = "\n".join(rules)
    held = escape(json.dumps(data, separators=(",", ":")), quote=False)
    inside = (
        f"<metadata>{held}</metadata>\n<style>\n"
        f"@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n</style>\n"
    )
    start = re.search(r"<svg[^>]*>\n", drawn).end()
    return drawn[:start] + inside + drawn[start:]


def held(svg):
    """Return the data that a picture holds, or None where it holds none."""
    found = re.search("<metadata>(.*?)</metadata>", svg)
    return json.loads(unescape(found[1])) if found else None


def words(svg):
    """Return all that is written in a picture, in order."""
    found = re.findall(r"<text.*?>(.*?)</text>", svg, re.DOTALL)
    return [re.sub("<.*?>", "", text) for text in found]


def same(a, b):
    """Return whether two data are the same up to rounding: processors differ."""
    a = json.dumps(a)
    b = json.dumps(b)
    if NUMBER.sub("#", a) != NUMBER.sub("#", b):
        return False
    pairs = zip(NUMBER.findall(a), NUMBER.findall(b), strict=True)
    return all(
        math.isclose(float(x), float(y), rel_tol=1e-3, abs_tol=1e-5) for x, y in pairs
    )


def write():
    """Draw every picture anew, and say which were stale.

    From the data that it holds, where they still are the same.
    """
    matplotlib.use("agg")  # draws into files, without a display
    FOLDER.mkdir(exist_ok=True)
    for name, (show, _) in PICTURES.items():
        path = FOLDER / f"{name}.svg"
        old = path.read_text() if path.exists() else ""
        data = show()
        before = held(old)
        new = draw(name, before if same(data, before) else data)
        if new != old:
            print(f"{path.relative_to(ROOT)} was stale")
            path.write_text(new)
    print(f"{len(PICTURES)} pictures are fresh")


if __name__ == "__main__":
    write()
