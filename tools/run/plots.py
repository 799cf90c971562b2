"""Draw the curves of the stages: for `make compare` and the notebooks."""

from tools.run import palette


def plot(curves, limits, verdict):
    """Return a figure of the losses, what is right, and the distance from the first.

    `curves` maps stages to lists of (loss, correct, total). `limits` has, for each of
    their lines, the distance up to which it is rounding; `verdict` is the title.
    """
    from matplotlib import pyplot as plt

    with plt.rc_context(palette.STYLE):
        figure, panels = plt.subplots(1, 3, figsize=(14, 4), layout="constrained")
        draw_curves(panels[:2], curves)
        draw_bands(panels[2], limits)
        draw_distances(panels[2], curves)
        figure.suptitle(verdict, x=0.01, ha="left", weight="bold", fontsize=13)
        for axes in panels:
            axes.set_xlabel("epoch, or line of metrics.csv")
            axes.xaxis.get_major_locator().set_params(integer=True)
            axes.grid()
    return figure


def line_styles(stages):
    """Return a style for each stage's line: wide to narrow, so that all are seen."""
    styles = {}
    for index, stage in enumerate(stages):
        width = 2.0 * (len(stages) - index) + 0.5
        style = {"label": stage, "linewidth": width}
        styles[stage] = style | {"marker": "o", "markersize": width}
    return styles


def draw_curves(panels, curves):
    """Draw the losses of `curves` on the left axes, the test accuracy on the right."""
    left, right = panels
    for stage, style in line_styles(curves).items():
        losses, correct, totals = zip(*curves[stage], strict=True)
        shares = [100 * one / all_ for one, all_ in zip(correct, totals, strict=True)]
        epochs = range(1, len(losses) + 1)
        left.plot(epochs, losses, **style)
        right.plot(epochs, shares, **style)
    left.set_ylabel("training loss (cross entropy, nats)")
    right.set_ylabel("accuracy (%)")
    right.legend(title="wide to narrow", loc="lower right", borderpad=1, handlelength=1)


def draw_bands(axes, limits):
    """Draw what is rounding, green, and what is a bug, red, behind the distances."""
    edges = [0.5 + line for line in range(len(limits) + 1)]
    style = {"fill": True, "alpha": 0.12}
    axes.stairs(limits, edges, baseline=-1e-10, color=palette.LIGHT["good"], **style)
    axes.stairs(limits, edges, baseline=10, color=palette.LIGHT["bad"], **style)
    place = {"x": 0.02, "transform": axes.transAxes, "weight": "bold"}
    axes.text(y=0.94, s="a bug", color=palette.LIGHT["bad"], **place)
    axes.text(y=0.03, s="rounding", color=palette.LIGHT["good"], **place)


def draw_distances(axes, curves):
    """Draw how far each loss is from that of the first stage, on a log scale with 0."""
    first, reference = next(iter(curves.items()))
    for stage, style in line_styles(curves).items():
        distances = []
        for one, other in zip(curves[stage], reference, strict=False):
            distances.append(abs(one[0] / (other[0] or 1) - 1))
        axes.plot(range(1, len(distances) + 1), distances, **style)
    axes.set_ylabel(f"relative distance of the loss from {first}")
    axes.set_yscale("symlog", linthresh=1e-10)
    axes.set_ylim(-1e-10, 10)
