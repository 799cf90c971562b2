"""Draw timelines, and provide the helpers that all pictures share."""

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from tools.run.palette import LIGHT

NARROW = 5.4  # inches, about 520 pixels: readable on a phone
WORK = {  # a rank's work in a timeline
    "data": LIGHT["line"],
    "forward": LIGHT["right"],
    "backward": LIGHT["ghost"],
    "optimizer": LIGHT["soft"],
    "evaluation": LIGHT["good"],
}
MESSAGES = {  # between ranks, drawn over their work, later entries on top
    "send": LIGHT["rank2"],
    "receive": LIGHT["old"],
    "all-gather": LIGHT["rank3"],
    "all-reduce": LIGHT["message"],
    "reduce-scatter": LIGHT["bad"],  # gloo implements it with all-reduces
}
KINDS = WORK | MESSAGES


def figure(width, height, rows=1, columns=1, **options):
    """Return a figure of the given size in inches, and its axes."""
    made = Figure(figsize=(width, height), layout="constrained")
    return made, made.subplots(rows, columns, **options)


def legend_below(made, entries, columns=3):
    """Put a legend below all axes of a figure: `entries` are artists with labels."""
    made.legend(handles=entries, loc="outside lower center", ncols=columns)


def draw_timeline(spans, borders, title):
    """Return a figure of [rank, kind, start, end] spans, one row per rank.

    `borders` are the times at which rank 0 ends a step. All times are in microseconds.
    """
    made, axes = figure(7.2, 2.4 + 0.6 * len({rank for rank, *_ in spans}))
    legend = []
    for kind, color in KINDS.items():
        drawn = [span for span in spans if span[1] == kind]
        for rank, _, start, end in drawn:
            left = max(start, 0) / 1000
            height = 0.4 if kind in MESSAGES else 0.8
            style = {"color": color, "edgecolor": color}  # edges show short spans
            axes.barh(f"rank {rank}", end / 1000 - left, height, left, **style)
        if drawn:
            legend.append(Patch(color=color, label=kind))
    for border in borders:
        axes.axvline(border / 1000, color=LIGHT["ink"], linewidth=1)
    axes.invert_yaxis()
    axes.set_xlim(0)
    axes.set_xlabel("milliseconds; no color: idle; line: rank 0 ends a step")
    axes.set_title(title, loc="left", fontsize=10)
    legend_below(made, legend)
    return made
