"""Draw the stages' curves for `make compare` and the notebooks."""

from operator import gt

from tools.run.palette import LIGHT, STYLE


def plot(curves, limits, verdict, row="epoch"):
    """Return a figure of the losses, and below, their distances from the first curve.

    `curves` maps stages to lists of (loss, correct, total). `limits` contains, for each
    row, the distance that rounding may cause; `verdict` is the title, and `row` labels
    the x-axis.
    """
    from matplotlib import pyplot as plt

    size = {"figsize": (4.4, 3.6), "height_ratios": (2, 1), "layout": "constrained"}
    with plt.rc_context(STYLE | {"xtick.major.size": 0, "ytick.major.size": 0}):
        figure, (upper, lower) = plt.subplots(2, sharex=True, **size)
        draw_bands(lower, limits)
        draw_curves(upper, lower, curves, limits)
        figure.suptitle(verdict, x=0.01, ha="left", weight="bold", fontsize=11)
        for axes in upper, lower:
            axes.spines[:].set_visible(False)
        lower.set_xticks([line + 1 for line in range(len(limits))])
        lower.set_xlabel(row)
        upper.grid(axis="y")
    return figure


def draw_curves(upper, lower, curves, limits):
    """Draw losses, and distances from the first curve, whose marks are the largest."""
    first, reference = next(iter(curves.items()))
    for stage, curve in curves.items():
        losses = [loss for loss, *_ in curve]
        pairs = zip(losses, reference, strict=False)
        distances = [abs(loss / (other[0] or 1) - 1) for loss, other in pairs]
        is_far = any(map(gt, distances, limits))
        color = "ghost" if stage == first else "bad" if is_far else "right"
        size = 8 if stage == first else 4
        style = {"label": stage, "color": LIGHT[color], "zorder": 3 + is_far}
        style |= {"marker": "o", "markersize": size, "linewidth": size / 3}
        upper.plot(range(1, len(losses) + 1), losses, **style)
        lower.plot(range(1, len(distances) + 1), distances, **style | {"linewidth": 0})
    upper.set_ylabel("loss", weight="bold")
    upper.legend(fontsize=8)
    lower.set_ylabel("distance", weight="bold")
    lower.set_yscale("symlog", linthresh=1e-10)
    lower.set(ylim=(-1e-10, 10), yticks=[0, 1e-8, 1e-6, 1e-4, 1e-2])
    lower.minorticks_off()


def draw_bands(axes, limits):
    """Shade distances that are rounding in green and bugs in red."""
    edges = [0.5 + line for line in range(len(limits) + 1)]
    style = {"fill": True, "alpha": 0.12, "linewidth": 0}
    axes.stairs(limits, edges, baseline=-1e-10, color=LIGHT["good"], **style)
    axes.stairs(limits, edges, baseline=10, color=LIGHT["bad"], **style)
    place = {"x": 1.5, "ha": "center", "transform": axes.get_xaxis_transform()}
    axes.text(y=0.82, s="bug", weight="bold", color=LIGHT["bad"], **place)
    axes.text(y=0.22, s="rounding", weight="bold", color=LIGHT["good"], **place)
    axes.set_xlim(edges[0], edges[-1])
