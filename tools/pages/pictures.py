"""Draw the pages' pictures of data in svg/: `python -m tools.pages.pictures`.

Each contains its data as JSON and uses the palette's colors, light or dark like the
reader's theme. The other files in svg/ are drawn by hand; we only update their colors.
"""

import io
import json
import math
from os.path import commonprefix

import matplotlib
import torch
from markupsafe import Markup
from torch import nn
from torch.utils.data import DistributedSampler

from tools.bench import planned
from tools.bench.figures import NARROW, draw_timeline, figure
from tools.bench.tables import published
from tools.pages import drawing, outcomes
from tools.pages.markup import TEMPLATES
from tools.pages.switches import SWITCHES, edited
from tools.run import palette
from tools.run.data import SAMPLE, tensors
from tools.run.palette import LIGHT
from tools.run.stages import ROOT, load

FOLDER = ROOT / "tools" / "pages" / "svg"
ON_CLIFF = {  # mistake -> color of its curve, and where its label ends
    "": ("ink", 111, 1.2),
    "no ring": ("bad", 150, 2.87),
    "gradients not sent back": ("bad", 150, 1.5),
    "no offset of the positions": ("right", 70, 1.5),
}
STYLE = {**palette.STYLE, "font.size": 10, "axes.titlesize": 10}


def who_gets_what():
    """Return the [rank, step] that gets each of 16 images in three epochs.

    There are two ranks with two images a step, with set_epoch and then without.
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
    titles = "with set_epoch(epoch)", "without it, every epoch repeats the first"
    return [dict(zip(titles, found, strict=True))]


def numbers_of_first_step():
    """Return the numbers of stage 4's first step on two ranks, rounded.

    {"labels": of the 64 images in shuffled order, "losses": of each rank, "gradients":
    of the last layer's ten biases on each rank, "mean": of these, "whole": the
    gradients of one process with all images, "biases": after the step}.
    """
    torch.manual_seed(0)
    model = load("04_ddp").Net(128)
    sampler = DistributedSampler(range(4000), 1, 0)
    sampler.set_epoch(1)
    places = list(sampler)[:64]
    images, labels = tensors(SAMPLE)[places]
    bias = model.layers[3].bias
    losses, found = [], []
    for part in slice(0, 64, 2), slice(1, 64, 2), slice(64):
        model.zero_grad()
        loss = nn.functional.cross_entropy(model(images[part]), labels[part])
        loss.backward()
        losses.append(round(loss.item(), 4))
        found.append(bias.grad.clone())
    biases = bias.detach() - 0.1 * (found[0] + found[1]) / 2
    first, second, whole = [[round(x, 4) for x in one.tolist()] for one in found]
    mean = [(a + b) / 2 for a, b in zip(first, second, strict=True)]
    step = {"labels": labels.tolist(), "losses": losses[:2], "whole": whole}
    step |= {"gradients": [first, second], "mean": [round(one, 5) for one in mean]}
    return [step | {"biases": [round(one, 4) for one in biases.tolist()]}]


def bubble():
    """Return the schedules of two halves with 1, 2 and 4 micro-batches.

    A forward pass of the batch through one half takes 1, a backward pass 2.
    """
    found = {}
    for count in 1, 2, 4:
        lengths = [1 / count, 1 / count, 2 / count, 2 / count]
        found[count] = drawing.schedule(lengths, count)
    return [found, "time"]


def memory():
    """Return {kind: bytes} that one of two ranks stores at each moment of a step.

    The model has eight layers of 1,024 units, with Adam. The moments are before the
    step, after each layer forward and backward, and at the end. FSDP gathers one layer
    at a time and keeps its whole gradient until it is cut. Hooks count the same.
    """
    layer = 4 * (1024 * 1024 + 1024)
    found = {"DDP": [], "FSDP": []}
    for moment in range(18):
        works = 0 < moment < 17
        done = min(max(moment - 8, 0), 8)  # layers whose backward pass has begun
        whole = [16, 8, 0, done]
        shards = [8, 4, works, (done + (works and done > 0)) / 2]
        for name, counts in ("DDP", whole), ("FSDP", shards):
            sizes = [int(count * layer) for count in counts]
            found[name].append(dict(zip(drawing.KINDS, sizes, strict=True)))
    return [found]


def cliff(*mistakes):
    """Return the second curve's loss at each step, right and with mistakes.

    {"": losses of one process, mistake in stage 17: losses of two ranks}.
    """
    ring = "17_context_parallel"
    edits = {one["name"]: one["edits"] for one in SWITCHES if one["stage"] == ring}
    texts = {"": edited("13_gpt", [])}
    texts |= {name: edited(ring, edits[name]) for name in mistakes}
    found = {}
    for name, text in texts.items():
        stage = ring if name else "13_gpt"
        curve = outcomes.run_second_curve(stage, text, 2, "--every", 1)
        found[name] = [round(loss, 5) for loss, *_ in curve]
    return [found]


def draw_cliff(curves):
    """Draw losses by step; `curves` is {mistake: losses}, with one process's as ""."""
    made, axis = figure(NARROW, 2.8)
    axis.axhline(math.log(16), color=LIGHT["soft"], linewidth=0.8, linestyle="--")
    axis.text(2, 2.45, "ln 16: guessing", color=LIGHT["soft"])
    for name, losses in curves.items():
        color, x, y = ON_CLIFF[name]
        axis.plot([None, *losses], color=LIGHT[color], lw=1.2 if name else 2)
        axis.text(x, y, name or "one process", color=LIGHT[color], ha="right")
    axis.set(xlabel="step", ylabel="loss", xlim=(0, 151), ylim=(0, 3.2))
    return made


def losses_by_step():
    """Return stage 4's losses by epoch and by step, right and without set_epoch."""
    found = {}
    for name in "01_cpu=1", "04_ddp=2", "04_ddp/set_epoch=2":
        run = outcomes.stored_run(name)
        epochs = [round(loss, 6) for loss, *_ in run["curve"]]
        found[name] = {"epochs": epochs, "steps": [round(x, 3) for x in run["steps"]]}
    return [found]


def rounded_by_step():
    """Return the loss at each step in float32, and how far other runs are from it."""
    right = outcomes.stored_run("01_cpu=1")["steps"]
    found = {"float32": [round(loss, 3) for loss in right]}
    for name in "04_ddp=2", "autocast=1", "autocast=2", "04_ddp/set_epoch=2":
        pairs = zip(outcomes.stored_run(name)["steps"], right, strict=True)
        found[name] = [round(loss - other, 5) for loss, other in pairs]
    return [found]


PICTURES = {  # name -> a function that returns the data, a list, and what draws them
    "set_epoch": (who_gets_what, drawing.assignments),
    "hero": (losses_by_step, "hero.svg"),
    "rounded": (rounded_by_step, "rounded.svg"),
    "filled": (lambda: [[planned.memory(8, 8, n) for n in (0, 1)]], "filled.svg"),
    "cuts": (lambda: [planned.TABLES["cuts"]()], "cuts.svg"),
    "step": (numbers_of_first_step, "step.svg"),
    "bubble": (bubble, drawing.schedules),
    "trace": (lambda: published("traced")[:3], draw_timeline),
    "memory": (memory, drawing.memory),
    "copied": (cliff, draw_cliff),
    "cliff": (lambda: cliff(*list(ON_CLIFF)[1:]), draw_cliff),
}


def draw(name):
    """Return a picture's SVG."""
    show, plot = PICTURES[name]
    data = show()
    if isinstance(plot, str):
        return fill(plot, data)
    file = io.StringIO()
    about = {"Description": json.dumps(data), "Date": None, "Creator": None}
    with matplotlib.rc_context(STYLE):
        plot(*data).savefig(file, format="svg", metadata=about)
    return palette.themed(file.getvalue())


def fill(name, data):
    """Return a picture's SVG from its template."""
    template = TEMPLATES.get_template(name)
    (found,) = data
    about = {"json": json.dumps(data), "data": found, "common": commonprefix}
    return template.render(palette=Markup(palette.stylesheet()), **about) + "\n"


if __name__ == "__main__":
    for name in PICTURES:
        (FOLDER / f"{name}.svg").write_text(draw(name))
    for path in FOLDER.glob("*.svg"):
        path.write_text(palette.restyled(path.read_text()))
