"""Pictures that only pages show: what is stored when, and who holds which part."""

import numpy as np

from tools.bench.figures import NARROW, figure, legend_below
from tools.run.palette import LIGHT

BOTH = LIGHT["line"]  # what both ranks hold
KINDS = {
    "Adam's averages": BOTH,
    "weights": LIGHT["right"],
    "a gathered layer": LIGHT["good"],
    "gradients": LIGHT["message"],
}


def memory(moments):
    """Draw what a rank stores at each moment of a step, a panel for each mechanism.

    `moments` are {mechanism: [{kind: bytes}, ...]}.
    """
    made, panels = figure(NARROW, 4.6, len(moments), sharex=True, sharey=True)
    for axis, (mechanism, steps) in zip(panels, moments.items(), strict=True):
        bottom = np.zeros(len(steps))
        for kind, color in KINDS.items():
            sizes = np.array([stored[kind] for stored in steps]) / 1e6
            axis.bar(range(len(steps)), sizes, 0.9, bottom, color=color, label=kind)
            bottom += sizes
        axis.set_title(f"{mechanism}: at most {max(bottom):.1f} MB", loc="left")
        axis.set(ylabel="MB", yticks=[0, 50, 100])
        axis.tick_params(axis="x", length=0)
    names = ["", *range(1, 9), *range(8, 0, -1), "step"]  # "" is before the step
    axis.set_xticks(range(len(names)), names, fontsize=9)
    axis.set_xlabel("forward through layers 1 to 8, backward through 8 to 1")
    legend_below(made, panels[0].containers, columns=2)
    return made


def cliff(curves):
    """Draw losses by step: {mistake: losses}, "" has those of a right run."""
    made, axis = figure(NARROW, 4)
    colors = dict(zip(curves, ("ink", "bad", "bad", "ghost"), strict=True))
    dashes = dict(zip(curves, ("-", "-", "--", "-"), strict=True))
    for name, losses in curves.items():
        style = {"color": LIGHT[colors[name]], "linewidth": 1.2 if name else 3}
        style["linestyle"] = dashes[name]
        label = name or "right: one process, or any cut"
        axis.plot(range(1, len(losses) + 1), losses, label=label, **style)
    guess = np.log(16)
    axis.axhline(guess, color=LIGHT["soft"], linewidth=0.8, linestyle="--")
    axis.text(150, guess + 0.06, "ln 16: guessing", ha="right", color=LIGHT["soft"])
    axis.set(xlabel="step", ylabel="loss", xlim=(0, 151), ylim=(0, 3.1))
    axis.grid(axis="y")
    legend_below(made, axis.lines[:-1], columns=1)
    return made
