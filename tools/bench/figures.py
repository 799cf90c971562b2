"""The pictures of a benchmark, of the memory of each stage, and of the timelines."""

import numpy as np
from matplotlib import rcParams
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from tools.bench.tables import by_case, most_processes, speedup

BLUE = "#1f6fb4"
ORANGE = "#d9731a"
GREY = "#c5cbd1"
WIDTHS = [BLUE, ORANGE, "#2a8a5f", "#9467bd", "#b3266b"]  # a color for each width
KINDS = {  # of work in a timeline
    "forward": BLUE,
    "backward": ORANGE,
    "waiting": "#f2b8a4",
    "all-reduce": "#b3266b",
    "copy": "#8a6bbf",
    "all-gather": "#d9a7e0",
    "reduce-scatter": "#7a1f3d",
    "send": "#2f8f83",
    "receive": "#f0e2c0",
    "replicate": "#c9a227",
    "scatter": "#2a8a5f",
    "gather": "#56b4a0",
    "optimizer": "#6b7580",
    "evaluation": "#8db33a",
    "data": GREY,
}


def speedups(result):
    """Return {width: [batch, speed-up, least, most]} of the most processes measured."""
    most = most_processes(result)
    found = {}
    for (hidden, batch), group in sorted(by_case(result).items()):
        numbers = [round(one, 3) for one in speedup(group, most)]
        found.setdefault(str(hidden), []).append([batch, *numbers])
    return found


def draw_speedups(found, title):
    """Return a figure of `speedups` over the batch: a line for each width."""
    figure = Figure(figsize=(8, 3.6), layout="constrained")
    axes = figure.subplots()
    axes.axhline(1, color=rcParams["text.color"], linewidth=1)
    ticks = set()
    for place, (hidden, rows) in enumerate(found.items()):
        batches, middles, least, most = np.array(rows).T
        shifted = batches * 1.04 ** (place - 1.5)  # so that no bar hides another
        ranges = [middles - least, most - middles]
        style = {"marker": "o", "capsize": 3, "color": WIDTHS[place]}
        axes.errorbar(shifted, middles, ranges, label=f"{hidden} wide", **style)
        ticks.update(row[0] for row in rows)
    axes.set_xscale("log", base=2)
    axes.set_xticks(sorted(ticks), sorted(ticks))
    axes.set_xlabel("images per step, of all processes")
    axes.set_ylabel("times as fast as one process")
    axes.set_ylim(0)
    axes.grid(axis="y")
    axes.set_title(title, loc="left")
    axes.legend(loc="upper left", frameon=False)
    return figure


def draw_benchmark(result, folder):
    """Draw the speed-up; return the paths: none if only one process was measured."""
    processes = most_processes(result)
    if processes == 1:
        return []
    title = f"{processes} processes: median and range; below 1 they are slower"
    path = folder / "bench_speedup.png"
    draw_speedups(speedups(result), title).savefig(path, dpi=120)
    return [path]


def draw_memory(found, path):
    """Draw the memory of each rank with Adam: {stage: [{kind: bytes}]}."""
    figure = Figure(figsize=(11, 4), layout="constrained")
    axes = figure.subplots()
    bars = []  # of each rank; those of a stage stand side by side
    places = []
    middles = []
    for ranks in found.values():
        start = places[-1] + 2 if places else 0
        bars += ranks
        places += range(start, start + len(ranks))
        middles.append(start + (len(ranks) - 1) / 2)
    below = np.zeros(len(bars))
    for kind, color in {"parameters": BLUE, "gradients": ORANGE, "Adam": GREY}.items():
        sizes = [rank[kind] / 1000 for rank in bars]
        drawn = axes.bar(places, sizes, bottom=below, color=color, label=kind)
        below += sizes
    axes.bar_label(drawn, [f"{size:,.0f}" for size in below], fontsize=7)
    axes.set_title("Memory of each rank that trains with Adam", fontsize=10)
    axes.set_ylabel("kB on each rank")
    axes.set_xticks(middles, [name.replace("_", "\n") for name in found])
    axes.margins(x=0.01, y=0.1)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=3)
    figure.savefig(path, dpi=120)


def draw_timeline(spans, borders, title, path):
    """Draw the spans (row, kind, start, end) from the first to the last of the borders.

    These are where steps end. All times in microseconds.
    """
    start = borders[0]
    end = borders[-1]
    spans = [span for span in spans if span[3] > start and span[2] < end]
    rows = sorted({span[0] for span in spans}, key=lambda row: (row != "process", row))
    kinds = {span[1] for span in spans}
    figure = Figure(figsize=(11, 1.4 + 0.75 * len(rows)), layout="constrained")
    axes = figure.subplots()
    # The short ones last: they lie within longer ones, and would be hidden.
    spans.sort(key=lambda span: (span[1] == "all-reduce", span[2] - span[3]))
    for row, kind, first, last in spans:
        place = rows.index(row)
        height = 0.8
        if kind == "all-reduce":  # beside the ranks that wait for it
            place += 0.28
            height = 0.24
        first = max(first, start)
        last = min(last, end)
        width = max(last - first, 0.002 * (end - start))  # visible, as in the legend
        left = (first - start) / 1000
        axes.barh(place, width / 1000, height, left, color=KINDS[kind])
    for border in borders[1:-1]:
        axes.axvline((border - start) / 1000, color="black", linewidth=1)
    axes.set_yticks(range(len(rows)), rows)
    axes.set_xlim(0, (end - start) / 1000)
    axes.set_xlabel("milliseconds; white: idle; black line: the first row ends a step")
    axes.invert_yaxis()
    handles = [Patch(color=KINDS[kind], label=kind) for kind in KINDS if kind in kinds]
    figure.legend(handles=handles, loc="outside upper center", ncols=9, fontsize=9)
    axes.set_title(title, fontsize=10)
    figure.savefig(path, dpi=130)
