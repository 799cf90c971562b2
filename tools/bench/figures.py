"""The pictures of the benchmark and of the timelines."""

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from tools.bench.tables import by_case, speedup, step_parts

BLUE, ORANGE, GREY = "#1f6fb4", "#d9731a", "#c5cbd1"
STEP_PARTS = {"computing": BLUE, "waiting": GREY, "communicating": ORANGE}
KINDS = {  # of work in a timeline
    "forward": BLUE, "backward": ORANGE, "waiting": "#f2b8a4", "all-reduce": "#b3266b", "copy": "#8a6bbf",
    "all-gather": "#d9a7e0", "reduce-scatter": "#7a1f3d", "send": "#2f8f83",
    "receive": "#f0e2c0", "replicate": "#c9a227", "scatter": "#2a8a5f", "gather": "#56b4a0",
    "optimizer": "#6b7580", "evaluation": "#8db33a", "data": GREY,
}  # fmt: skip


def draw_speedup(groups, path):
    """Draw speed-up and efficiency over the processes, of the cases of `by_case`."""
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    numbers = sorted({processes for group in groups.values() for processes in group})
    left.plot(numbers, numbers, "--", color="grey", label="ideal")
    right.axhline(100, linestyle="--", color="grey")
    colours = colormaps["viridis"].resampled(len(groups) + 1)  # the last is too light
    for index, ((hidden, batch), group) in enumerate(groups.items()):
        measured = sorted(group)
        faster = [speedup(group, number)[0] for number in measured]
        efficiency = [100 * s / n for s, n in zip(faster, measured, strict=True)]
        style = {"marker": "o", "color": colours(index)}
        left.plot(measured, faster, label=f"{hidden} wide, batch {batch}", **style)
        right.plot(measured, efficiency, **style)
    left.set_ylabel("speed-up (times one process)")
    right.set(ylabel="efficiency (%)", ylim=(0, None))
    for axes in left, right:
        axes.set(xlabel="processes", xticks=numbers)
        axes.grid(alpha=0.3)
    handles = left.get_legend_handles_labels()
    figure.legend(*handles, loc="outside right center", fontsize=8)
    figure.savefig(path, dpi=120)


def draw_step(groups, processes, path):
    """Draw the parts of a step on so many processes, of the cases of `by_case`."""
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    names = [f"{hidden}\n{batch}" for hidden, batch in groups]
    cases = np.array([step_parts(group[processes]) for group in groups.values()])
    totals = cases.sum(axis=1)
    shares = 100 * cases / totals[:, None]
    for place, (kind, colour) in enumerate(STEP_PARTS.items()):
        below = shares[:, :place].sum(axis=1)
        bars = axes.bar(names, shares[:, place], bottom=below, color=colour, label=kind)
    axes.bar_label(bars, [f"{1000 * total:.1f}" for total in totals], fontsize=8)
    axes.set(ylabel="share of a step (%)", ylim=(0, 112),
             xlabel="width of the hidden layer, batch of all processes")  # fmt: skip
    axes.set_title(f"A step on {processes} processes; above: milliseconds", fontsize=10)
    figure.legend(loc="outside lower center", ncols=3)
    figure.savefig(path, dpi=120)


def draw_benchmark(result, folder):
    """Draw speed-up and efficiency, and the parts of a step; return the paths."""
    groups = by_case(result)
    most = max(max(group) for group in groups.values())
    paths = [folder / "bench_speedup.png", folder / "bench_step.png"][:most]
    draw_speedup(groups, paths[0])
    if most > 1:
        draw_step(groups, most, paths[1])
    return paths


def draw_memory(found, path):
    """Draw what each rank holds, {stage: [{kind: bytes}]}, with momentum and with Adam."""
    figure = Figure(figsize=(11, 6), layout="constrained")
    panels = figure.subplots(2, 1, sharex=True, sharey=True)
    bars, places, middles = [], [], []  # a group of bars for each stage
    for ranks in found.values():
        start = places[-1] + 2 if bars else 0
        bars += ranks
        places += range(start, start + len(ranks))
        middles.append(start + (len(ranks) - 1) / 2)
    for axes, optimizer in zip(panels, ("momentum", "Adam"), strict=True):
        below = np.zeros(len(bars))
        kinds = {"parameters": BLUE, "gradients": ORANGE, optimizer: GREY}
        for kind, colour in kinds.items():
            sizes = [rank[kind] / 1000 for rank in bars]
            label = "optimizer's state" if kind == optimizer else kind
            shown = axes.bar(places, sizes, bottom=below, color=colour, label=label)
            below += sizes
        axes.bar_label(shown, [f"{size:,.0f}" for size in below], fontsize=7)
        axes.set(ylabel="kB on each rank", xticks=middles)
        axes.set_xticklabels([name.replace("_", "\n") for name in found])
        axes.set_title({"momentum": "SGD with momentum"}.get(optimizer, optimizer))
        axes.margins(x=0.01, y=0.1)
        axes.spines[["top", "right"]].set_visible(False)
    handles = panels[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=3)
    figure.savefig(path, dpi=120)


def draw_timeline(spans, borders, title, path):
    """Draw the spans (row, kind, start, end) from the first to the last of the borders.

    These are where steps end. All times in microseconds. Returns the rows from top to
    bottom, and the kinds.
    """
    start, end = borders[0], borders[-1]
    spans = [span for span in spans if span[3] > start and span[2] < end]
    rows = sorted({row for row, *_ in spans}, key=lambda row: (row != "process", row))
    kinds = {kind for _, kind, *_ in spans}
    figure = Figure(figsize=(11, 1.4 + 0.75 * len(rows)), layout="constrained")
    axes = figure.subplots()
    # The short ones last: they lie within longer ones, and would be hidden.
    for row, kind, first, last in sorted(spans, key=lambda s: s[2] - s[3]):
        place, height = rows.index(row), 0.8
        if kind == "all-reduce":  # beside the ranks that wait for it
            place, height = place + 0.28, 0.24
        first, last = max(first, start), min(last, end)
        wide = max(last - first, 0.002 * (end - start))  # what the legend names is seen
        axes.barh(place, wide / 1000, left=(first - start) / 1000, height=height,
                  color=KINDS[kind])  # fmt: skip
    for border in borders[1:-1]:
        axes.axvline((border - start) / 1000, color="black", linewidth=1)
    axes.set(yticks=range(len(rows)), yticklabels=rows, xlim=(0, (end - start) / 1000),
             xlabel="milliseconds; white: idle; black line: the first row ends a step")  # fmt: skip
    axes.invert_yaxis()
    handles = [Patch(color=KINDS[kind], label=kind) for kind in KINDS if kind in kinds]
    figure.legend(handles=handles, loc="outside upper center", ncols=9, fontsize=9)
    axes.set_title(title, fontsize=10)
    figure.savefig(path, dpi=130)
    return rows, sorted(kinds)
