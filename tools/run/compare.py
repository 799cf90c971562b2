"""Compare the stages' curves in a folder: `python -m tools.run.compare [runs]`."""

import csv
import json
import math
import os
import sys
from pathlib import Path

from tools.run import data
from tools.run.gpus import count_gpus
from tools.run.stages import (
    BY_NAME,
    BY_TORCHRUN,
    EVERY,
    ROOT,
    STAGES,
    end_at_a_closed_pipe,
    refuse,
)

COUNTS = 0.002  # of the test images: how many more or fewer may be right, by rounding
SMALL = 0.005  # so far, relatively, images that ranks count twice or TF32 move a loss
WHOLE_SET = "08_tensor_parallel", "09_pipeline"  # every rank has all images
SHARED = "batch_size", "lr", "hidden", "seed", "data"  # flags of the curve


def allowed(epoch):
    """Return how far, relatively, a loss may be off by rounding in `epoch`, from 1 on.

    Float32 sums in another order differ in the last digits, and training amplifies that
    in each epoch. Measured on all of MNIST, on 2 and on 4 ranks: 8e-7, 4e-5 and 3e-4 in
    the first three epochs, 9e-4 at most in ten, and 6 of 10,000 test images. A bug
    shows in the first epoch already.
    """
    return min(1e-5 * 20 ** (epoch - 1), 5e-3)


def read(path):
    """Return metrics.csv as a list of (loss, correct, total), one for each epoch.

    A last line without its end is left out: a run was killed while it wrote that line.
    """
    text = Path(path).read_text()
    whole, _, _ = text.rpartition("\n")
    found = []
    for row in csv.DictReader(whole.splitlines()):
        found.append((float(row["loss"]), int(row["correct"]), int(row["total"])))
    return found


def read_flags(folder):
    """Return the flags of the run that wrote metrics.csv, as texts: {name: value}.

    It is empty where they are not known: the script ran without make, or a later run
    has not finished its first epoch.
    """
    flags, metrics = folder / "flags.json", folder / "metrics.csv"
    if not flags.exists() or flags.stat().st_mtime > metrics.stat().st_mtime:
        return {}
    return json.loads(flags.read_text())


def other_flags(flags, reference, first):
    """Return the flags that differ from those of the stage `first`, as typed."""
    return ", ".join(
        f"--{name.replace('_', '-')} {flags[name]} ({first}: {reference[name]})"
        for name in SHARED
        if name in flags and name in reference and flags[name] != reference[name]
    )


def images_twice(stage, flags):
    """Return in a few words which images a run had twice, or None.

    DistributedSampler gives all ranks equally many images. Where it cannot, it repeats
    the first ones, and these count twice in the curve.
    """
    shards = int(flags.get("processes", 1))
    who = "ranks"
    if stage in WHOLE_SET:
        shards = 1
    if stage == "10_hybrid":
        shards //= 2
        who = "pairs of ranks"  # of which both have the same images
    try:
        train, _ = data.check(flags["data"])
    except (KeyError, ValueError, OSError):
        return None
    more = -train % shards
    if not more:
        return None
    images = f"{more} image{'s' * (more != 1)}"
    return f"{shards} {who} cannot share {train} images evenly, so {images} came twice"


def explain(flags, stage, first):
    """Return what else may have moved a loss a little, as the end of a verdict.

    `flags` maps stages to what `read_flags` returned; `stage` is compared with `first`.
    """
    for name in stage, first:
        twice = images_twice(name, flags.get(name, {}))
        if twice:
            return f": {name}'s {twice}"
    if stage in BY_TORCHRUN and "processes" not in flags.get(stage, {}):
        return "; images that came twice, or TF32 (make doctor), can do that"
    return "; TF32 (make doctor) can do that"


def judge(curve, reference, same_bits, because=""):
    """Compare a curve, as of `read`, with another: return (verdict, are they equal?).

    Only the epochs that both have count. With `same_bits`, losses and counts must be
    the same to the last digit, which holds on CPUs only. Else a loss may be off by what
    `allowed` says, and a count by COUNTS of the test images. `because` ends the verdict
    on a loss that is off by a little.
    """
    pairs = list(zip(curve, reference, strict=False))
    losses = [loss for loss, _, _ in curve]
    if not all(math.isfinite(loss) for loss in losses):
        return "DIFFERENT: a loss is not a number", False
    if any(one[2] != other[2] for one, other in pairs):
        return "DIFFERENT: another number of test images", False
    if all(one == other for one, other in pairs):
        return "equal", True
    off = max(abs(one[0] - other[0]) / (abs(other[0]) or 1) for one, other in pairs)
    images = max(abs(one[1] - other[1]) for one, other in pairs)
    if same_bits:
        text = f"a loss is off by {off:.1e}, a count by {images}"
        return f"DIFFERENT: {text}; one CPU gives the same bits", False
    for epoch, (one, other) in enumerate(pairs, start=1):
        if not math.isclose(one[0], other[0], rel_tol=allowed(epoch)):
            text = f"DIFFERENT: a loss is off by {off:.1e}"
            return text + (because if off < SMALL else ""), False
        if abs(one[1] - other[1]) > COUNTS * one[2]:
            return f"DIFFERENT: {images} more or fewer images are right", False
    return f"equal to rounding ({off:.0e})", True


def listed(names):
    """Return names as in a sentence: `a`, `a and b`, `a, b and c`."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def counted(epochs):
    return f"{epochs} epoch{'s' * (epochs != 1)}"


def uneven(curves):
    """Return a sentence on stages with another number of epochs than most, or None."""
    by_epochs = {}
    for stage, curve in curves.items():
        by_epochs.setdefault(len(curve), []).append(stage)
    if len(by_epochs) == 1:
        return None
    usual = max(by_epochs, key=lambda epochs: (len(by_epochs[epochs]), epochs))
    said = []
    again = []
    for epochs, stages in by_epochs.items():
        if epochs != usual:
            has = "has" if len(stages) == 1 else "have"
            said.append(f"{listed(stages)} {has} {counted(epochs)}")
            again += [f"`make {BY_NAME[stage].target}`" for stage in stages]
    others = "the others have" if len(by_epochs[usual]) > 1 else "the other has"
    return (
        f"{', '.join(said)}, {others} {usual}: only the epochs that they share are "
        f"compared. To compare all, run {listed(again)} again."
    )


def all_on_one_device():
    """Return whether stages of one process ran on the same CPU: no GPU is here."""
    return not count_gpus()


def table(curves, one_device=True, flags=None):
    """Return the lines of a table of the stages' results, and the names that differ.

    `curves` maps stage to curve; the others are compared with the first of them.
    `flags` maps stage to what `read_flags` returned. `one_device`: the stages of one
    process had the same CPU, so they give the same bits; ranks and GPUs add in another
    order.
    """
    first, reference = next(iter(curves.items()))
    flags = flags or {}
    lines = [
        f"{'stage':18} {'epochs':>6} {'last loss':>10} {'test':>12}   from {first}"
    ]
    differ = []
    for stage, curve in curves.items():
        loss, correct, total = curve[-1]
        because = explain(flags, stage, first)
        same_bits = one_device and not {first, stage} & set(BY_TORCHRUN)
        verdict, equal = judge(curve, reference, same_bits, because)
        if not equal:
            differ.append(stage)
            others = other_flags(flags.get(stage, {}), flags.get(first, {}), first)
            if others:
                verdict = f"DIFFERENT: run with other flags: {others}"
        test = f"{correct}/{total}"
        lines.append(f"{stage:18} {len(curve):6} {loss:10.6f} {test:>12}   {verdict}")
    note = uneven(curves)
    if note:
        lines.append(note)
    return lines, differ


def main():
    from tools.run import plots  # which imports this module

    os.environ["MPLBACKEND"] = "agg"  # draws into files, without a display
    end_at_a_closed_pipe()
    os.chdir(ROOT)
    top = Path(sys.argv[1] if sys.argv[1:] else "runs")
    curves = {}
    for path in (top / stage / "metrics.csv" for stage in EVERY.values()):
        try:
            curve = read(path) if path.exists() else []
        except (ValueError, KeyError, TypeError):
            refuse(f"{path} is no metrics.csv of a stage: run the stage again")
        if curve:
            curves[path.parent.name] = curve
    if not curves:
        refuse(f"no stage has run yet in {top}: make all, or one, such as make cpu")
    flags = {stage: read_flags(top / stage) for stage in curves}
    lines, differ = table(curves, all_on_one_device(), flags)
    print("\n".join(lines))
    absent = [stage for stage in STAGES if stage not in curves]
    if absent:
        print(f"not run yet: {', '.join(absent)}")
    verdict = f"{len(curves)} scripts, one loss curve" if len(curves) > 1 else ""
    if differ:
        verdict = f"not one curve: {', '.join(differ)} differ{'s' * (len(differ) == 1)}"
    missing = f" (not run yet: {', '.join(absent)})" if absent else ""
    try:
        plots.plot(curves, verdict + missing).savefig(top / "curves.png", dpi=130)
    except OSError as error:
        refuse(f"cannot write {top / 'curves.png'}: {error}")
    print(f"drawn in {top / 'curves.png'}")
    if differ:
        refuse(verdict)
    if verdict:
        print(verdict)


if __name__ == "__main__":
    main()
