"""Pictures that only pages show: what is stored when, and who holds which part."""

from matplotlib import rcParams
from matplotlib.patches import Rectangle

from tools.pages.drawing import BLUE, NARROW, ORANGE, RANKS, figure

BOTH = "#d5dbe1"  # what both ranks hold
GREEN = "#4c9a5b"
KINDS = {"Adam": BOTH, "weights": BLUE, "gathered": GREEN, "gradients": ORANGE}
TITLES = {"Adam": "Adam's averages", "gathered": "a gathered layer"}


def memory(moments):
    """Draw what a rank stores at each moment of a step, a panel for each mechanism.

    `moments` are {mechanism: [[name of the moment, {kind: bytes}], ...]}.
    """
    made, panels = figure(NARROW, 4.6, len(moments), sharex=True, sharey=True)
    for axis, (mechanism, steps) in zip(panels, moments.items(), strict=True):
        bottom = [0.0] * len(steps)
        for kind, color in KINDS.items():
            sizes = [stored[kind] / 1e6 for _, stored in steps]
            label = TITLES.get(kind, kind)
            axis.bar(range(len(steps)), sizes, 0.9, bottom, color=color, label=label)
            bottom = [low + size for low, size in zip(bottom, sizes, strict=True)]
        axis.set_title(f"{mechanism}: at most {max(bottom):.1f} MB", loc="left")
        axis.set(ylabel="MB", yticks=[0, 50, 100])
        axis.tick_params(axis="x", length=0)
    numbers = [name.split()[-1] for name, _ in steps]
    numbers[0] = ""  # before the step
    axis.set_xticks(range(len(numbers)), numbers, fontsize=9)
    axis.set_xlabel("forward through layers 1 to 8, backward through 8 to 1")
    labels = panels[0].get_legend_handles_labels()
    made.legend(*labels, loc="outside lower center", ncols=2, frameon=False)
    return made


def box(axis, place, size, color, text):
    """Draw a rectangle at (x, y) of (width, height), with a text in its middle."""
    style = {"facecolor": color, "edgecolor": rcParams["axes.edgecolor"]}
    axis.add_patch(Rectangle(place, *size, clip_on=False, **style))
    middle = place[0] + size[0] / 2, place[1] + size[1] / 2
    axis.text(*middle, text, ha="center", va="center")


def sheet(height, top, titles):
    """Return a figure of panels without axes, with such titles; x from 0 to 100."""
    made, panels = figure(NARROW, height, len(titles), squeeze=False)
    for axis, title in zip(panels.flat, titles, strict=True):
        axis.set(xlim=(0, 100), ylim=(0, top))
        axis.invert_yaxis()
        axis.axis("off")
        axis.set_title(title, loc="left")
    return made, panels.flat


def matrices(images, inputs, hidden, outputs):
    """Draw the products of two layers: the first cut by column, the second by row.

    The numbers are the sizes of the matrices; two ranks have half of `hidden` each.
    """
    titles = "First layer, cut by column", "Second layer, cut by row"
    made, (first, second) = sheet(4.8, 48, titles)
    half = hidden // 2

    def label(axis, x, y, text):
        axis.text(x, y, text, ha="center", va="center", color=rcParams["xtick.color"])

    box(first, (0, 12), (27, 16), BOTH, f"{images} images")
    label(first, 13, 31, f"{inputs} pixels")
    label(first, 30.5, 20, "×")
    for rank in range(2):
        box(first, (34 + 14 * rank, 4), (14, 32), RANKS[rank], f"rank {rank}")
        label(first, 41 + 14 * rank, 39, half)
        box(first, (72 + 14 * rank, 12), (14, 16), RANKS[rank], f"rank {rank}")
        label(first, 79 + 14 * rank, 31, half)
    label(first, 48, 1, "weights")
    label(first, 67, 20, "=")
    label(first, 86, 9, "hidden units")

    for rank in range(2):
        box(second, (14 * rank, 12), (14, 16), RANKS[rank], f"rank {rank}")
        label(second, 7 + 14 * rank, 31, half)
        box(second, (36, 4 + 16 * rank), (14, 16), RANKS[rank], f"rank {rank}")
        box(second, (58 + 24 * rank, 12), (16, 16), RANKS[rank], f"rank {rank}")
        label(second, 66 + 24 * rank, 31, outputs)
    label(second, 14, 9, "hidden units")
    label(second, 32, 20, "×")
    label(second, 43, 1, "weights")
    label(second, 43, 39, outputs)
    label(second, 54, 20, "=")
    label(second, 78, 20, "+")
    label(second, 78, 9, "all-reduce")
    return made


def grid(pairs):
    """Draw a grid of ranks: a row for each pair, a column for each half of a layer."""
    made, (axis,) = sheet(2.9, 52, [""])
    for pair in range(pairs):
        top = 12 + 20 * pair
        images = "even" if pair == 0 else "odd"
        axis.text(
            0, top + 7, f"pair {pair}:\n{images} places\nof the batch", va="center"
        )
        for column in range(2):
            rank = 2 * pair + column
            box(axis, (27 + 40 * column, top), (26, 14), RANKS[column], f"rank {rank}")
        arrow(axis, (53, top + 7), (67, top + 7), BLUE)
        axis.text(60, top + 3, "tp", ha="center", va="center")
    for column in range(2):
        x = 40 + 40 * column
        half = "first" if column == 0 else "second"
        axis.text(x, 5, f"{half} half of each layer", ha="center", va="center")
        arrow(axis, (x, 26), (x, 32), ORANGE)
        axis.text(x + 3, 29, "dp", va="center")
    return made


def arrow(axis, start, end, color):
    """Draw an arrow with two heads."""
    style = {"arrowstyle": "<->", "color": color, "linewidth": 1.5}
    axis.annotate("", end, start, arrowprops=style)
