"""Draw the curves of the stages: for `make compare`, the notebooks and the pages."""

import math

from tools.run.compare import allowed

ZERO = 1e-10  # where a distance of 0 is drawn on a log scale


def plot(curves, verdict=None):
    """Return a figure of the losses, the test accuracy and the distance from the first.

    `curves` maps names of stages to what `read` returned for them; `verdict` is the
    title.
    """
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(1, 3, figsize=(14, 4), layout="constrained")
    draw_curves(panels[:2], curves)
    draw_distances(panels[2], curves)
    if verdict:
        figure.suptitle(verdict)
    return figure


def line_styles(stages):
    """Return a style for each stage's line, from wide to narrow.

    Equal curves lie on top of each other. Every one of them stays visible this way.
    """
    from matplotlib import colormaps

    found = {}
    for index, stage in enumerate(stages):
        width = 2.0 * (len(stages) - index) + 0.5
        color = colormaps["viridis"](0.95 * (1 - (index + 1) / len(stages)))
        style = {"label": stage, "color": color, "linewidth": width}
        style |= {"marker": "o", "markersize": width, "solid_joinstyle": "round"}
        found[stage] = style
    return found


def draw_curves(panels, curves):
    """Draw the losses of `curves` on the left axes, the test accuracy on the right."""
    left, right = panels
    styles = line_styles(curves)
    for stage, curve in curves.items():
        epochs = range(1, len(curve) + 1)
        left.plot(epochs, [loss for loss, *_ in curve], **styles[stage])
        shares = [100 * correct / total for _, correct, total in curve]
        right.plot(epochs, shares, **styles[stage])
    left.set(xlabel="epoch", ylabel="training loss (cross entropy, nats)")
    right.set(xlabel="epoch", ylabel="test accuracy (%)")
    for axes in panels:
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(alpha=0.3)
    right.legend(title="wide to narrow", loc="lower right", borderpad=1, handlelength=1)


def draw_distances(axes, curves):
    """Draw how far each loss is from that of the first stage, on a log scale."""
    first, reference = next(iter(curves.items()))
    for stage, style in line_styles(curves).items():
        away = []
        for one, other in zip(curves[stage], reference, strict=False):
            away.append(abs(one[0] / (other[0] or 1) - 1))
        style |= {"linewidth": 1.5, "markersize": style["markersize"] + 2}
        axes.plot(range(1, len(away) + 1), [max(far, ZERO) for far in away], **style)
    mark_distances(axes, max(map(len, curves.values())), first)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.grid(alpha=0.3)


def mark_distances(axes, epochs, first):
    """Mark on a log scale of relative errors what is 0, what rounding, what a bug."""
    ends = [0.8, *range(1, epochs + 1), epochs + 0.2]
    edge = [allowed(min(max(round(end), 1), epochs)) for end in ends]
    axes.fill_between(ends, ZERO / 3, edge, color="tab:green", alpha=0.12, linewidth=0)
    axes.fill_between(ends, edge, 10, color="tab:red", alpha=0.12, linewidth=0)
    place = {"x": ends[-1], "ha": "right", "va": "center"}
    axes.text(y=math.sqrt(ZERO * edge[-1]), s="rounding ", **place)
    axes.text(y=math.sqrt(10 * edge[-1]), s="a bug ", **place)
    axes.set(xlabel="epoch", ylabel=f"relative distance of the loss from {first}")
    axes.set(yscale="log", ylim=(ZERO / 3, 10), xlim=(ends[0], ends[-1]))
    axes.set_yticks([ZERO, *(10.0**n for n in range(-8, 1, 2))])
    axes.set_yticklabels(["0", *(f"1e{n}" for n in range(-8, 0, 2)), "1"])
    axes.minorticks_off()
