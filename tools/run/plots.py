"""Draw curves for `make compare` and the notebooks, as on the first page."""

from operator import gt

from tools.run.palette import LIGHT, STYLE

BAND = {"fill": True, "alpha": 0.17, "linewidth": 0}
NEXT_TO = {"textcoords": "offset points", "weight": "bold"}


def plot(curves, limits, verdict, row="epoch", steps=()):
    """Return a figure of the losses, and below, their distances from the first curve.

    `curves` maps stages to lists of (loss, correct, total). `limits` contains, for each
    row, the distance that rounding may cause; `verdict` is the title, and `row` names a
    row. `steps` are the right loss of each step, drawn behind the rows.
    """
    from matplotlib import pyplot as plt

    size = {"figsize": (7, 3.6), "height_ratios": (2, 1), "layout": "constrained"}
    with plt.rc_context(STYLE):
        figure, (upper, lower) = plt.subplots(2, sharex=True, **size)
        figure.get_layout_engine().set(rect=(0.02, 0, 0.98, 1))  # larger on a phone
        figure.suptitle(verdict, x=0.02, ha="left", weight="bold", fontsize=11)
        if steps:
            at = [0.5 + len(limits) * (n + 0.5) / len(steps) for n in range(len(steps))]
            style = {"color": LIGHT["ghost"], "alpha": 0.7, "linewidth": 3}
            upper.plot(at, steps, label="each step, recorded", **style)
        draw_bands(lower, limits)
        draw_curves(upper, lower, curves, limits, 0 if steps else 1)
        for axes, name in (upper, "loss"), (lower, "distance"):
            axes.spines[:].set_visible(False)
            axes.set_title(name, weight="bold", fontsize=9)
        losses = [loss for loss, *_ in next(iter(curves.values()))]
        names = [f"{row} {n}\n{loss:.6f}" for n, loss in enumerate(losses, start=1)]
        lower.set_xticks(range(1, len(names) + 1), names)
        upper.set_ylim(0)
        upper.grid(axis="y")
        found = dict(zip(*reversed(upper.get_legend_handles_labels()), strict=True))
        upper.legend(found.values(), found, loc="upper right", bbox_to_anchor=(0.9, 1))
    return figure


def draw_curves(upper, lower, curves, limits, width):
    """Draw losses, and distances from the first curve, whose marks are the largest."""
    first, reference = next(iter(curves.items()))
    floor = lower.get_ylim()[0]
    for stage, curve in curves.items():
        rows = range(1, len(curve) + 1)
        losses = [loss for loss, *_ in curve]
        pairs = zip(losses, reference, strict=False)
        distances = [abs(loss / (other[0] or 1) - 1) for loss, other in pairs]
        is_far = any(map(gt, distances, limits))
        color = LIGHT["bad" if is_far else "ghost" if stage == first else "right"]
        size = 10 if stage == first else 5
        style = {"color": color, "marker": "o", "markersize": size, "clip_on": False}
        style |= {"linewidth": width * size / 3, "zorder": 3 + is_far}
        is_alone = is_far or stage == first or len(curves) == 2
        upper.plot(rows, losses, label=stage if is_alone else "the others", **style)
        for row, off, limit in zip(rows, distances, limits, strict=False):
            if stage != first:
                lower.plot(row, max(off, floor), **style)
            if off > limit:
                lower.vlines(row, floor, off, color=color, linestyle=":")
                text = f"{off / limit:,.0f} ×"
                lower.annotate(text, (row, off), (7, -3), color=color, **NEXT_TO)


def draw_bands(axes, limits):
    """Shade distances that are rounding in green and bugs in red."""
    edges = [0.5 + line for line in range(len(limits) + 1)]
    floor = min(limits) / 1e4
    axes.set(yscale="log", yticks=[1e-8, 1e-6, 1e-4, 1e-2])
    axes.set(yticklabels=["1e-8", "1e-6", "1e-4", "1e-2"], ylim=(floor, 10))
    axes.minorticks_off()
    axes.set_xlim(edges[0], edges[-1])
    kinds = ("bug", "bad", 10, 10), ("rounding", "good", floor, limits[0])
    for name, color, start, top in kinds:
        axes.stairs(limits, edges, baseline=start, color=LIGHT[color], **BAND)
        look = {"color": LIGHT[color], "va": "top", **NEXT_TO}
        axes.annotate(name, (edges[0], top), (5, -4), **look)
