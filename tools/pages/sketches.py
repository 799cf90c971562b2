"""Pictures that only pages show: what is stored when, and who holds which part."""

import numpy as np
from matplotlib.patches import Rectangle

from tools.bench.figures import NARROW, figure, legend_below
from tools.pages.drawing import RANKS
from tools.run.palette import LIGHT

BOTH = LIGHT["line"]  # what both ranks hold
KINDS = {
    "Adam's averages": BOTH,
    "weights": LIGHT["right"],
    "a gathered layer": LIGHT["good"],
    "gradients": LIGHT["message"],
}
# Boxes of two products of matrices: x, y, width, height, color; what is in and below.
FIRST = [
    (0, 12, 27, 16, BOTH, "64 images", "784 pixels"),
    (34, 4, 14, 32, RANKS[0], "rank 0", "64"),
    (48, 4, 14, 32, RANKS[1], "rank 1", "64"),
    (72, 12, 14, 16, RANKS[0], "rank 0", "64"),
    (86, 12, 14, 16, RANKS[1], "rank 1", "64"),
]
SECOND = [
    (0, 12, 14, 16, RANKS[0], "rank 0", "64"),
    (14, 12, 14, 16, RANKS[1], "rank 1", "64"),
    (36, 4, 14, 16, RANKS[0], "rank 0", ""),
    (36, 20, 14, 16, RANKS[1], "rank 1", "10"),
    (58, 12, 16, 16, RANKS[0], "rank 0", "10"),
    (82, 12, 16, 16, RANKS[1], "rank 1", "10"),
]
# Words above the boxes, and signs between them: x, y, text.
FIRST_WORDS = [(48, 1, "weights"), (86, 9, "hidden units"), (30.5, 20, "×")]
FIRST_WORDS += [(67, 20, "=")]
SECOND_WORDS = [(14, 9, "hidden units"), (43, 1, "weights"), (78, 9, "all-reduce")]
SECOND_WORDS += [(32, 20, "×"), (54, 20, "="), (78, 20, "+")]


def memory(moments):
    """Draw what a rank stores at each moment of a step, a panel for each mechanism.

    `moments` are {mechanism: [{kind: bytes}, ...]}.
    """
    made, panels = figure(NARROW, 4.6, len(moments), sharex=True, sharey=True)
    for axis, (mechanism, steps) in zip(panels, moments.items(), strict=True):
        bottom = np.zeros(len(steps))
        for kind, color in KINDS.items():
            sizes = np.array([stored[kind] for stored in steps]) / 1e6
            axis.bar(range(len(steps)), sizes, 0.9, bottom, color=color, label=kind)
            bottom += sizes
        axis.set_title(f"{mechanism}: at most {max(bottom):.1f} MB", loc="left")
        axis.set(ylabel="MB", yticks=[0, 50, 100])
        axis.tick_params(axis="x", length=0)
    names = ["", *range(1, 9), *range(8, 0, -1), "step"]  # "" is before the step
    axis.set_xticks(range(len(names)), names, fontsize=9)
    axis.set_xlabel("forward through layers 1 to 8, backward through 8 to 1")
    legend_below(made, panels[0].containers, columns=2)
    return made


def matrices():
    """Draw the products of two layers: the first cut by column, the second by row."""
    made, (first, second) = figure(NARROW, 4.8, 2)
    first.set_title("First layer, cut by column", loc="left")
    second.set_title("Second layer, cut by row", loc="left")
    middle = {"ha": "center", "va": "center"}
    style = {"edgecolor": LIGHT["page"], "clip_on": False}
    for axis, boxes in (first, FIRST), (second, SECOND):
        axis.set(xlim=(0, 100), ylim=(48, 0))
        axis.axis("off")
        for x, y, width, height, color, within, below in boxes:
            axis.add_patch(Rectangle((x, y), width, height, facecolor=color, **style))
            color = LIGHT["page" if color in RANKS else "ink"]
            axis.text(x + width / 2, y + height / 2, within, color=color, **middle)
            axis.text(x + width / 2, y + height + 3, below, **middle)
    for axis, words in (first, FIRST_WORDS), (second, SECOND_WORDS):
        for x, y, text in words:
            axis.text(x, y, text, **middle)
    return made


def cliff(curves):
    """Draw losses by step: {mistake: losses}, "" has those of a right run."""
    made, axis = figure(NARROW, 4)
    colors = dict(zip(curves, ("ink", "bad", "message", "ghost"), strict=True))
    for name, losses in curves.items():
        style = {"color": LIGHT[colors[name]], "linewidth": 1.2 if name else 3}
        label = name or "right: one process, or any cut"
        axis.plot(range(1, len(losses) + 1), losses, label=label, **style)
    guess = np.log(16)
    axis.axhline(guess, color=LIGHT["soft"], linewidth=0.8, linestyle="--")
    axis.text(150, guess + 0.06, "ln 16: guessing", ha="right", color=LIGHT["soft"])
    axis.set(xlabel="step", ylabel="loss", xlim=(0, 151), ylim=(0, 3.1))
    axis.grid(axis="y")
    legend_below(made, axis.lines[:-1], columns=1)
    return made
