"""Compare the curves of the stages in a folder: `python -m tools.compare [runs]`."""

import csv
import os
import sys
from pathlib import Path

from tools.stages import ROOT, STAGES, refuse


def allowed(epoch):
    """Return how far, relatively, a loss may be off by rounding in `epoch`, from 1 on.

    Float32 sums in another order differ in the last digits, and training makes more of
    that each epoch: on two ranks by 1e-9, 9e-6 and 8e-5 in the first three, on all of
    MNIST. A bug shows in the first epoch already.
    """
    return min(1e-5 * 10**epoch, 1e-2)


def read(path):
    """Return metrics.csv as a list of (loss, correct, total), one for each epoch."""
    with open(path, newline="") as file:
        return [
            (float(row["loss"]), int(row["correct"]), int(row["total"]))
            for row in csv.DictReader(file)
        ]


def distance(curve, other):
    """Return the largest relative difference of the losses of two curves, and whether
    it is more than rounding.

    Returns None, True where the runs cannot be compared: other epochs, or test images.
    """
    if [row[2] for row in curve] != [row[2] for row in other]:
        return None, True
    off = [abs(a[0] - b[0]) / abs(b[0]) for a, b in zip(curve, other, strict=True)]
    return max(off), any(far > allowed(epoch) for epoch, far in enumerate(off, start=1))


def table(curves):
    """Return the lines of a table of the stages' results, and the names that differ.

    `curves` maps stage to curve; the first of them is what the others are held against.
    """
    first, reference = next(iter(curves.items()))
    lines = [
        f"{'stage':18} {'epochs':>6} {'last loss':>10} {'test':>12}   from {first}"
    ]
    differ = []
    for stage, curve in curves.items():
        loss, correct, total = curve[-1]
        off, different = distance(curve, reference)
        if off is None:
            verdict = "another number of epochs or of test images"
        elif off == 0:
            verdict = "equal"
        elif different:
            verdict = f"DIFFERENT: a loss is off by {off:.2%}"
        else:
            verdict = f"equal to rounding ({off:.0e})"
        if different:
            differ.append(stage)
        lines.append(
            f"{stage:18} {len(curve):6} {loss:10.6f} {f'{correct}/{total}':>12}   {verdict}"
        )
    return lines, differ


def plot(curves):
    """Return a figure of loss and test accuracy against the epoch, a line for each stage.

    `curves` maps names of stages to what `read` returned for them.
    """
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    # Equal curves lie on each other: from wide to narrow, every one stays visible.
    for index, (stage, curve) in enumerate(curves.items()):
        width = 2.0 * (len(curves) - index) + 0.5
        style = {"label": stage, "linewidth": width, "solid_capstyle": "round"}
        style |= {"solid_joinstyle": "round", "marker": "o", "markersize": width}
        epochs = range(1, len(curve) + 1)
        dark = index / (len(curves) - 1) if len(curves) > 1 else 0.7
        colour = plt.colormaps["viridis"](0.95 - 0.95 * dark)
        left.plot(epochs, [row[0] for row in curve], color=colour, **style)
        accuracy = [100 * row[1] / row[2] for row in curve]
        right.plot(epochs, accuracy, color=colour, **style)
    left.set(xlabel="epoch", ylabel="training loss (cross entropy, nats)")
    right.set(xlabel="epoch", ylabel="test accuracy (%)")
    for axes in left, right:
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(alpha=0.3)
    right.legend(title="wide to narrow", loc="lower right", borderpad=1, handlelength=1)
    if len(curves) > 1:
        figure.suptitle(f"{len(curves)} scripts on top of each other")
    return figure


def draw(curves, path):
    """Draw `plot` into a PNG file."""
    import matplotlib

    matplotlib.use("Agg")
    part = path.with_name(".curves.png")
    plot(curves).savefig(part, dpi=130)
    os.replace(part, path)


def main():
    os.chdir(ROOT)
    top = Path(sys.argv[1] if sys.argv[1:] else "runs")
    curves = {}
    for stage in STAGES:
        path = top / stage / "metrics.csv"
        if path.exists():
            try:
                curves[stage] = read(path)
            except (ValueError, KeyError, TypeError):
                refuse(f"{path} is no metrics.csv of a stage: run the stage again")
    curves = {stage: curve for stage, curve in curves.items() if curve}
    if not curves:
        refuse(
            f"no stage has run yet in {top}: make all, or one of them, such as make cpu"
        )
    lines, differ = table(curves)
    print("\n".join(lines))
    absent = [stage for stage in STAGES if stage not in curves]
    if absent:
        print(f"not run yet: {', '.join(absent)}")
    try:
        draw(curves, top / "curves.png")
    except OSError as error:
        refuse(f"cannot write {top / 'curves.png'}: {error}")
    print(f"drawn in {top / 'curves.png'}")
    if differ:
        refuse(f"not one curve: {', '.join(differ)} differ{'s' * (len(differ) == 1)}")
    if len(curves) > 1:
        print(f"{len(curves)} scripts, one loss curve")


if __name__ == "__main__":
    main()
