"""Figures of the notebooks: each function turns a cell's results into a figure.

The pages also show some of them, see pictures.py. They don't use pyplot: a cell shows
the figure that its last line returns.
"""

import numpy as np
from matplotlib.patches import Patch

from tools.bench.figures import NARROW, WORK, figure, legend_below
from tools.run.palette import LIGHT

RANKS = LIGHT["rank0"], LIGHT["rank1"]
BOTH = LIGHT["line"]  # stored on both ranks
KINDS = {
    "Adam's averages": BOTH,
    "weights": LIGHT["right"],
    "a gathered layer": LIGHT["good"],
    "gradients": LIGHT["message"],
}
ON_WORK = {"forward": LIGHT["page"], "backward": LIGHT["ink"]}  # of text


def images(images, titles):
    """Draw images (count, height, width), each below its title, eight in a row."""
    rows = -(-len(images) // 8)
    made, panels = figure(NARROW, rows, rows, 8)
    for axis in panels.flat:  # the last row may have empty panels
        axis.axis("off")
    for axis, image, title in zip(panels.flat, images, titles, strict=False):
        axis.imshow(image, cmap="gray_r")
        axis.set_title(title, fontsize=8)
    return made


def assignments(maps):
    """Draw which rank gets which image, and in which step.

    `maps` is {title: epochs}, an epoch the [rank, step] of each image.
    """
    height = sum(0.32 * len(epochs) + 0.75 for epochs in maps.values())
    made, panels = figure(NARROW, height, len(maps))
    made.get_layout_engine().set(hspace=0.12)
    for axis, (title, epochs) in zip(panels, maps.items(), strict=True):
        for epoch, images in enumerate(epochs, start=1):
            for image, (rank, step) in enumerate(images):
                axis.barh(epoch, 0.94, 0.88, image - 0.47, color=RANKS[rank])
                style = {"ha": "center", "va": "center_baseline"}
                axis.text(image, epoch, step, color=LIGHT["page"], **style)
        count = len(epochs[0])
        axis.set(xticks=range(count), xlim=(-0.6, count - 0.4))
        axis.set(yticks=range(1, len(epochs) + 1), ylabel="epoch")
        axis.set_title(title)
        axis.invert_yaxis()
        axis.spines[:].set_visible(False)
    axis.set_xlabel("image (violet: on rank 0, green: on rank 1; number: the step)")
    return made


def operations(found):
    """Draw a step's six longest operations; `found` is {title: {operation: share}}."""
    made, panels = figure(NARROW, 4.4, len(found), sharex=True)
    for axis, (title, shares) in zip(panels, found.items(), strict=True):
        names = sorted(shares, key=shares.get, reverse=True)[:6]
        colors = [LIGHT["right" if "mm" in name else "line"] for name in names]
        bars = axis.barh(names, [shares[name] for name in names], color=colors)
        axis.bar_label(bars, [f"{shares[name]:.0%}" for name in names], padding=3)
        axis.set_title(title)
        axis.invert_yaxis()
    panels[-1].set(xlim=(0, 1), xticks=[])
    return made


def gradients(before, after, whole):
    """Draw ten gradients of two ranks as bars, before and after the all-reduce.

    `before` and `after` contain each rank's ten numbers, `whole` the ten gradients that
    one process computes from all images.
    """
    made, (upper, lower) = figure(NARROW, 4.4, 2, sharex=True, sharey=True)
    made.get_layout_engine().set(hspace=0.12)
    for axis, pair in (upper, before), (lower, after):
        for rank, color in enumerate(RANKS):
            places = [digit - 0.2 + 0.4 * rank for digit in range(10)]
            axis.bar(places, pair[rank], 0.38, color=color, label=f"rank {rank}")
        axis.axhline(0, color=LIGHT["ink"], linewidth=0.8)
        axis.set(xticks=range(10), ylabel="gradient")
    label = "one process with the whole batch"
    lower.plot(range(10), whole, "_", color=LIGHT["ink"], markersize=16, label=label)
    lower.set_xlabel("bias of digit")
    upper.set_title("before the all-reduce")
    lower.set_title("after: the mean, on both ranks")
    legend_below(made, lower.get_legend_handles_labels()[0])
    return made


def timed(orders, lengths):
    """Return (rank, start, length, kind, micro-batch) of each piece of work in a step.

    `orders` lists each rank's (kind, micro-batch), `lengths` is {kind: a length on each
    rank}. A piece starts as soon as its rank is free and its input is there, from the
    rank before it (forward) or after it (backward).
    """
    ends = {}
    pieces = []
    waiting = [list(order) for order in orders]
    free = [0] * len(orders)
    while any(waiting):
        for rank, order in enumerate(waiting):
            if not order:
                continue
            kind, micro = order[0]
            neighbor = rank - 1 if kind == "forward" else rank + 1
            needed = (neighbor, kind, micro)
            if not 0 <= neighbor < len(orders):
                needed = None if kind == "forward" else (rank, "forward", micro)
            if needed and needed not in ends:
                continue
            order.pop(0)
            start = max(free[rank], ends[needed] if needed else 0)
            length = lengths[kind][rank]
            free[rank] = ends[rank, kind, micro] = start + length
            pieces.append((rank, start, length, kind, micro))
    return pieces


def schedule(parts, count):
    """Return the result of `timed` for two halves and `count` micro-batches in GPipe.

    `parts` are the times of one micro-batch: forward in the first and second half, then
    backward in the second and first (arXiv:1811.06965).
    """
    order = []
    for kind in "forward", "backward":
        order += [(kind, micro) for micro in range(count)]
    lengths = {"forward": parts[:2], "backward": [parts[3], parts[2]]}
    return timed([order, order], lengths)


def schedules(found, unit):
    """Draw when each half works; `found` is {micro-batches: result of `schedule`}."""
    made, panels = figure(NARROW, 4.2, len(found), sharex=True)
    for axis, (count, pieces) in zip(panels, found.items(), strict=True):
        for half, start, length, kind, micro in pieces:
            style = {"color": WORK[kind], "edgecolor": LIGHT["page"]}
            bar = axis.barh(half, length, left=start, **style)
            inside = {"label_type": "center", "weight": "bold"}
            axis.bar_label(bar, [micro + 1], color=ON_WORK[kind], **inside)
        end = max(start + length for _, start, length, *_ in pieces)
        busy = sum(length for _, _, length, *_ in pieces) / (2 * end)
        many = "micro-batches" if count > 1 else "micro-batch, as in stage 6"
        title = f"{count} {many}: each half works {busy:.0%} of the time"
        axis.set_title(title)
        axis.set(yticks=[0, 1], yticklabels=["first half", "second half"])
        axis.invert_yaxis()
    axis.set_xlabel(f"{unit} (number: micro-batch)")
    legend_below(made, [Patch(color=WORK[kind], label=kind) for kind in ON_WORK])
    return made


def memory(moments):
    """Draw what a rank stores at each moment of a step, one panel per mechanism.

    `moments` is {mechanism: [{kind: bytes}, ...]}.
    """
    made, panels = figure(NARROW, 4.6, len(moments), sharex=True, sharey=True)
    for axis, (mechanism, steps) in zip(panels, moments.items(), strict=True):
        bottom = np.zeros(len(steps))
        for kind, color in KINDS.items():
            sizes = np.array([stored[kind] for stored in steps]) / 1e6
            axis.bar(range(len(steps)), sizes, 0.9, bottom, color=color, label=kind)
            bottom += sizes
        axis.set_title(f"{mechanism}: at most {max(bottom):.1f} MB")
        axis.set(ylabel="MB", yticks=[0, 50, 100])
    names = ["", *range(1, 9), *range(8, 0, -1), "step"]  # "" is before the step
    axis.set_xticks(range(len(names)), names, fontsize=9)
    axis.set_xlabel("forward through layers 1 to 8, backward through 8 to 1")
    legend_below(made, panels[0].containers, columns=2)
    return made
