"""Draw the stages' curves for `make compare` and the notebooks."""

from tools.run import palette


def plot(curves, limits, verdict, row="epoch"):
    """Return a figure of the losses and their distances from the first curve.

    `curves` maps stages to lists of (loss, correct, total). `limits` contains, for each
    row, the distance that rounding may cause; `verdict` is the title, and `row` labels
    the x-axis.
    """
    from matplotlib import pyplot as plt

    with plt.rc_context(palette.STYLE):
        figure, (left, right) = plt.subplots(1, 2, figsize=(7, 3), layout="constrained")
        draw_bands(right, limits)
        draw_curves(left, right, curves)
        figure.suptitle(verdict, x=0.01, ha="left", weight="bold", fontsize=11)
        for axes in left, right:
            axes.set_xlabel(row)
            axes.xaxis.get_major_locator().set_params(integer=True)
            axes.grid()
    return figure


def draw_curves(left, right, curves):
    """Draw losses on the left axes, distances from the first curve on the right.

    Each line is narrower than the one before, so all are visible.
    """
    first, reference = next(iter(curves.items()))
    for index, (stage, curve) in enumerate(curves.items()):
        width = 1.2 * (len(curves) - index) + 0.5
        style = {"label": stage, "linewidth": width, "marker": "o", "markersize": width}
        losses = [loss for loss, *_ in curve]
        left.plot(range(1, len(losses) + 1), losses, **style)
        pairs = zip(losses, reference, strict=False)
        distances = [abs(loss / (other[0] or 1) - 1) for loss, other in pairs]
        right.plot(range(1, len(distances) + 1), distances, **style)
    left.set_title("training loss (nats)")
    left.legend(title="wide to narrow", borderpad=0.5, handlelength=1, fontsize=8)
    right.set_title(f"relative distance from {first}")
    right.set_yscale("symlog", linthresh=1e-10)
    right.set_ylim(-1e-10, 10)


def draw_bands(axes, limits):
    """Shade distances that are rounding in green and bugs in red."""
    edges = [0.5 + line for line in range(len(limits) + 1)]
    style = {"fill": True, "alpha": 0.12}
    axes.stairs(limits, edges, baseline=-1e-10, color=palette.LIGHT["good"], **style)
    axes.stairs(limits, edges, baseline=10, color=palette.LIGHT["bad"], **style)
    place = {"x": 0.02, "transform": axes.transAxes, "weight": "bold"}
    axes.text(y=0.92, s="a bug", color=palette.LIGHT["bad"], **place)
    axes.text(y=0.16, s="rounding", color=palette.LIGHT["good"], **place)
