"""The pictures of a benchmark and of the timelines."""

import numpy as np
from matplotlib import rcParams
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from tools.bench.tables import by_case, speedup

BLUE = "#1f6fb4"
ORANGE = "#d9731a"
WIDTHS = [BLUE, ORANGE, "#2a8a5f", "#9467bd", "#b3266b"]  # a color for each width
WORK = {  # of a rank, in a timeline
    "data": "#c5cbd1",
    "forward": BLUE,
    "backward": ORANGE,
    "optimizer": "#6b7580",
    "evaluation": "#8db33a",
}
MESSAGES = {  # between ranks, drawn on their work, the later ones on the earlier
    "send": "#2f8f83",
    "receive": "#f0e2c0",
    "all-gather": "#d9a7e0",
    "all-reduce": "#b3266b",
    "reduce-scatter": "#7a1f3d",  # gloo makes it of all-reduces
}
KINDS = WORK | MESSAGES


def speedups(result):
    """Return {width: [batch, speed-up, least, most]} of the most processes measured."""
    found = {}
    for (hidden, batch), group in sorted(by_case(result).items()):
        numbers = [round(one, 3) for one in speedup(group, max(group))]
        found.setdefault(str(hidden), []).append([batch, *numbers])
    return found


def draw_speedups(found, title):
    """Return a figure of `speedups` over the batch: a line for each width."""
    figure = Figure(figsize=(5.4, 3.8), layout="constrained")  # for a phone, too
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


def draw_timeline(spans, borders, title):
    """Return a figure of [rank, kind, start, end] spans, one row for each rank.

    `borders` are when rank 0 ends a step. All times are in microseconds.
    """
    size = 7.2, 2.4 + 0.6 * len({rank for rank, *_ in spans})
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots()
    legend = []
    for kind, color in KINDS.items():
        drawn = [span for span in spans if span[1] == kind]
        for rank, _, start, end in drawn:
            left = max(start, 0) / 1000
            height = 0.4 if kind in MESSAGES else 0.8
            style = {"color": color, "edgecolor": color}  # edges show what is short
            axes.barh(f"rank {rank}", end / 1000 - left, height, left, **style)
        if drawn:
            legend.append(Patch(color=color, label=kind))
    for border in borders:
        axes.axvline(border / 1000, color=rcParams["text.color"], linewidth=1)
    axes.invert_yaxis()
    axes.set_xlim(0)
    axes.set_xlabel("milliseconds; no color: idle; line: rank 0 ends a step")
    axes.set_title(title, loc="left", fontsize=10)
    figure.legend(handles=legend, loc="outside lower center", ncols=3, frameon=False)
    return figure
