"""What the notebooks draw: each function takes what a cell has found, returns a figure.

The figures are without pyplot: a cell shows the one that it ends with. STYLE is for
matplotlib.rcParams, which nb.prepare() updates.
"""

import torch
from matplotlib import rcParams
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

# Opaque, so that axes and labels can be read on a dark page too.
STYLE = {
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "figure.dpi": 110,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "font.size": 9,
}
BLUE = "#1f6fb4"
ORANGE = "#d9731a"
GREEN = "#2a8a5f"
GREY = "#8a939c"
COLORS = BLUE, GREEN, ORANGE, "#b08cc0", "#c5cbd1"
RANKS = "#b9d9ff", "#ffd0a0"  # light: black text is on them


def figure(width, height, rows=1, columns=1, **options):
    """Return a figure of that size in inches, and its axes."""
    made = Figure(figsize=(width, height), layout="constrained")
    return made, made.subplots(rows, columns, **options)


def table(axis, values, texts, **style):
    """Draw a table: each cell in the color of its value, with its text.

    `values` and `texts` are (rows, columns) in size, `style` is what imshow takes.
    """
    axis.imshow(values, **style)
    axis.grid(visible=False)
    for y, row in enumerate(texts):
        for x, text in enumerate(row):
            axis.text(x, y, text, ha="center", va="center", color="black", fontsize=8)


def images(images, titles):
    """Draw images (count, height, width), each below its title, eight in a row."""
    rows = -(-len(images) // 8)
    made, axes = figure(8, 1.4 * rows, rows, 8)
    for axis in axes.flat:  # the last row may have some left over
        axis.axis("off")
    for axis, image, title in zip(axes.flat, images, titles, strict=False):
        axis.imshow(image, cmap="gray_r")
        axis.set_title(title, fontsize=8)
    return made


def digits(shares):
    """Draw how many percent of the images each digit has: {name: ten numbers}."""
    made, axis = figure(8, 2.6)
    for number, (name, share) in enumerate(shares.items()):
        places = torch.arange(10) + 0.4 * number - 0.2
        axis.bar(places, share, 0.38, label=name, color=[BLUE, ORANGE][number])
    axis.axhline(10, color=GREY, linewidth=1, linestyle="--")
    axis.set(xlabel="digit", ylabel="share of the images (%)", xticks=range(10))
    made.legend(ncols=2, loc="outside upper center", frameon=False)
    return made


def mistakes(counts):
    """Draw which digit (row) is taken for which (column): counts (10, 10).

    The ten most frequent mistakes are in bold.
    """
    wrong = counts.clone().fill_diagonal_(0)
    made, axis = figure(4.8, 4.4)
    texts = [[count or "" for count in row] for row in wrong.tolist()]
    table(axis, wrong, texts, cmap="Oranges", vmin=0, vmax=2 * wrong.max().item())
    most = wrong.flatten().sort(descending=True).values[9]
    for text, count in zip(axis.texts, wrong.flatten().tolist(), strict=True):
        text.set(fontweight="bold" if count >= most else "normal", fontsize=9)
    axis.set(
        xlabel="classified as",
        ylabel="the digit is",
        xticks=range(10),
        yticks=range(10),
        title="mistakes on the test images",
    )
    return made


def shares(measured):
    """Draw what a time is made of: {name: {part: time}}, in any unit."""
    made, axis = figure(8, 2.4)
    totals = torch.tensor([sum(parts.values()) for parts in measured.values()])
    left = torch.zeros(len(measured))
    for kind, color in zip(next(iter(measured.values())), COLORS, strict=False):
        share = (
            100 * torch.tensor([parts[kind] for parts in measured.values()]) / totals
        )
        axis.barh(list(measured), share, left=left, color=color, label=kind)
        left += share
    axis.set(xlabel="share of a step's time (%)", xlim=(0, 100))
    axis.invert_yaxis()
    made.legend(ncols=5, loc="outside lower center", fontsize=8, frameon=False)
    return made


def draw_sheet(axis, images, devices, title):
    """Draw images (n, 28, 28), eight in a row, each in the color of its device."""
    columns = 8
    rows = -(-len(images) // columns)
    paper = torch.zeros(rows * columns, 28, 28)
    paper[: len(images)] = images.float().cpu()
    paper = paper.view(rows, columns, 28, 28).transpose(1, 2)
    axis.imshow(paper.reshape(rows * 28, columns * 28), cmap="gray_r")
    for place, device in enumerate(devices):
        corner = (place % columns * 28 - 0.5, place // columns * 28 - 0.5)
        axis.add_patch(Rectangle(corner, 28, 28, color=RANKS[device], alpha=0.5))
    axis.set_title(title)


def draw_outputs(axis, output, devices, title, **limits):
    """Draw outputs (n, 10), each row in the color of its device.

    `limits` are the values that are white and black: vmin and vmax.
    """
    axis.imshow(output.detach().cpu(), cmap="Greys", aspect="auto", **limits)
    style = {"alpha": 0.45, "linewidth": 0}
    for row, device in enumerate(devices):
        corner = (-0.5, row - 0.5)
        axis.add_patch(Rectangle(corner, 10, 1, color=RANKS[device], **style))
    axis.set_title(title)


def four_steps(batch, parts, outputs, result):
    """Draw how a batch of images is split, and how the outputs are joined.

    `batch` is (n, 28, 28), and `parts` are its two parts. `outputs` are the outputs of
    the parts, and `result` is (n, 10). An image is a row of the outputs.
    """
    made = Figure(figsize=(9, 4), layout="constrained")
    axes = made.subplot_mosaic(
        [["batch", "0", "out0", "all"], ["batch", "1", "out1", "all"]],
        width_ratios=[1.2, 1.2, 1, 1],
    )
    limits = {"vmin": result.min().item(), "vmax": result.max().item()}
    devices = [0] * len(parts[0]) + [1] * len(parts[1])
    draw_sheet(axes["batch"], batch, devices, f"batch {tuple(batch.shape)}")
    for device in (0, 1):
        part = parts[device]
        output = outputs[device]
        own = [device] * len(part)
        title = f"scatter {tuple(part.shape)}"
        draw_sheet(axes[str(device)], part, own, title)
        title = f"apply {tuple(output.shape)}"
        draw_outputs(axes[f"out{device}"], output, own, title, **limits)
    title = f"gather {tuple(result.shape)}"
    draw_outputs(axes["all"], result, devices, title, **limits)
    for axis in axes.values():
        axis.set(xticks=[], yticks=[])
        axis.grid(visible=False)
    return made


def assignments(maps):
    """Draw which rank gets which image, and in which step.

    `maps` has a row for each epoch under each title: [rank, step] of each image.
    """
    height = sum(0.32 * len(epochs) + 0.6 for epochs in maps.values())
    made, panels = figure(8.6, height, len(maps))
    for axis, (title, epochs) in zip(panels, maps.items(), strict=True):
        for epoch, images in enumerate(epochs, start=1):
            for image, (rank, step) in enumerate(images):
                axis.barh(epoch, 0.94, 0.88, image - 0.47, color=RANKS[rank])
                axis.text(image, epoch, step, ha="center", va="center_baseline")
        columns = len(epochs[0])
        axis.set(
            xticks=range(columns),
            yticks=range(1, len(epochs) + 1),
            xlim=(-0.6, columns - 0.4),
            ylabel="epoch",
        )
        axis.set_title(title, loc="left")
        axis.invert_yaxis()
        axis.grid(visible=False)
        axis.spines[:].set_visible(False)
        axis.tick_params(length=0)
    label = "image (blue: rank 0 gets it, orange: rank 1; the number is the step)"
    axis.set_xlabel(label)
    return made


def gradients(before, after, whole):
    """Draw ten gradients of two ranks as bars, before and after the all-reduce.

    `before` and `after` are pairs of ten numbers. `whole` are the ten gradients that
    one process computes from all images.
    """
    made, (left, right) = figure(8.6, 3.2, 1, 2, sharey=True)
    for axis, pair in (left, before), (right, after):
        for rank, color in enumerate((BLUE, ORANGE)):
            places = [digit - 0.2 + 0.4 * rank for digit in range(10)]
            axis.bar(places, pair[rank], 0.38, color=color, label=f"rank {rank}")
        axis.axhline(0, color=rcParams["axes.edgecolor"], linewidth=0.8)
        axis.grid(visible=False)
        axis.set(xticks=range(10), xlabel="bias of digit")
    color = rcParams["text.color"]
    label = "one process with the whole batch"
    right.plot(range(10), whole, "_", color=color, markersize=16, label=label)
    left.set(ylabel="gradient")
    left.set_title("before the all-reduce", loc="left")
    right.set_title("after: the mean, on both ranks", loc="left")
    labels = right.get_legend_handles_labels()
    made.legend(*labels, loc="outside lower center", ncols=3, frameon=False)
    return made


def accuracies(rows):
    """Draw counts as accuracies: a list of (name, correct, all). The last is a line."""
    made, axis = figure(8, 2.6)
    for place, (name, correct, total) in enumerate(rows):
        share = 100 * correct / total
        color = GREY
        if name.startswith("all"):
            color = BLUE if place == len(rows) - 1 else ORANGE
        axis.plot(share, place, "o", markersize=9, color=color)
        axis.annotate(
            f"{correct}/{total}",
            (share, place),
            xytext=(8, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
        )
    axis.axvline(share, color=BLUE, linewidth=1, linestyle="--")
    axis.set(
        xlabel="accuracy (%)",
        yticks=range(len(rows)),
        ylim=(len(rows) - 0.5, -0.5),
        yticklabels=[name for name, *_ in rows],
    )
    axis.margins(x=0.15)
    return made


def schedule(parts, count):
    """Return (half, start, length, kind, number) of each piece of a batch.

    There are `count` micro-batches. `parts` are the seconds of one: forward in the
    first half and in the second, backward in the second and in the first. Start and
    length are in seconds. All forward passes run before all backward passes, as in
    GPipe (arXiv:1811.06965). A piece starts as soon as its half is free and its input
    is there.
    """
    pieces = []
    free = [0.0, 0.0]  # when each half is free
    ready = [0.0] * count  # when each micro-batch has what it needs next
    kinds = "forward", "forward", "backward", "backward"
    for half, length, kind in zip((0, 1, 1, 0), parts, kinds, strict=True):
        for micro in range(count):
            start = max(free[half], ready[micro])
            pieces.append((half, start, length, kind, micro + 1))
            free[half] = ready[micro] = start + length
    return pieces


def schedules(pieces):
    """Draw when each half works: {number of micro-batches: result of `schedule`}."""
    made, axes = figure(9, 5, len(pieces), 1, sharex=True)
    colors = {"forward": BLUE, "backward": ORANGE}
    for axis, (count, found) in zip(axes, pieces.items(), strict=True):
        end = max(start + length for _, start, length, *_ in found)
        for half, start, length, kind, micro in found:
            bar = axis.barh(
                half,
                1000 * length,
                left=1000 * start,
                color=colors[kind],
                edgecolor="white",
            )
            axis.bar_label(bar, [micro], label_type="center", color="white", fontsize=8)
        busy = sum(length for _, _, length, *_ in found) / (2 * end)
        axis.set(yticks=[0, 1], yticklabels=["first half", "second half"])
        axis.invert_yaxis()
        axis.set_title(
            f"{count} micro-batch{'es' * (count > 1)}: {1000 * end:.1f} ms, "
            f"the halves are busy {busy:.0%} of the time",
            fontsize=9,
        )
    axes[-1].set_xlabel(
        "milliseconds (blue: forward, orange: backward; the number: micro-batch)"
    )
    return made
