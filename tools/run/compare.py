"""Compare the stages' curves in a folder: `python -m tools.run.compare [runs]`."""

import csv
import json
import math
import os
import sys
from pathlib import Path

from tools.run.gpus import count_gpus
from tools.run.stages import (
    CPU_PROCESSES,
    EVERY,
    ROOT,
    STAGES,
    end_at_a_closed_pipe,
    refuse,
)

COUNTS = 0.002  # fraction of the test images that rounding may move to right or wrong
SMALL = 0.005  # relative error that the following may cause
CAUSES = "TF32 (make doctor), or images that DistributedSampler repeats, can do that"
SHARED = "batch_size", "lr", "hidden", "seed", "data"  # flags that move the curve


def allowed(epoch):
    """Return the relative error that rounding may cause in a loss of an epoch (from 1).

    Float32 sums in another order differ in the last digits, and training amplifies that
    difference in each epoch. Measured on all of MNIST, on 2 and on 4 ranks: 8e-7, 4e-5
    and 3e-4 in the first three epochs, 9e-4 at most in ten epochs, and 6 of 10,000 test
    images. A bug shows in the first epoch.
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

    The flags are unknown, and the dict empty, if the script ran without make, or if a
    later run has not finished its first epoch.
    """
    flags = folder / "flags.json"
    metrics = folder / "metrics.csv"
    if not flags.exists() or flags.stat().st_mtime > metrics.stat().st_mtime:
        return {}
    return json.loads(flags.read_text())


def other_flags(flags, reference, first):
    """Return the flags that differ from those of the stage `first`, as typed."""
    found = []
    for name in SHARED:
        value = flags.get(name)
        expected = reference.get(name)
        if value is not None and expected is not None and value != expected:
            found.append(f"--{name.replace('_', '-')} {value} ({first}: {expected})")
    return ", ".join(found)


def judge(curve, reference, same_bits):
    """Compare two curves, as `read` returns them: return (verdict, are they equal?).

    Only the epochs that both have count. With `same_bits`, losses and counts must be
    equal to the last digit, which is true on CPUs only. Otherwise a loss may have the
    relative error that `allowed` returns, and a count may differ by COUNTS of the test
    images.
    """
    pairs = list(zip(curve, reference, strict=False))
    losses = [loss for loss, _, _ in curve]
    if not all(math.isfinite(loss) for loss in losses):
        return "DIFFERENT: a loss is not a number", False
    if any(one[2] != other[2] for one, other in pairs):
        return "DIFFERENT: another number of test images", False
    if all(one == other for one, other in pairs):
        return "equal", True
    error = max(abs(one[0] - other[0]) / (abs(other[0]) or 1) for one, other in pairs)
    images = max(abs(one[1] - other[1]) for one, other in pairs)
    if same_bits:
        text = f"a loss is off by {error:.1e}, a count by {images}"
        return f"DIFFERENT: {text}; one CPU gives the same bits", False
    for epoch, (one, other) in enumerate(pairs, start=1):
        if not math.isclose(one[0], other[0], rel_tol=allowed(epoch)):
            text = f"DIFFERENT: a loss is off by {error:.1e}"
            return f"{text}; {CAUSES}" if error < SMALL else text, False
        if abs(one[1] - other[1]) > COUNTS * one[2]:
            return f"DIFFERENT: {images} more or fewer images are right", False
    return f"equal to rounding ({error:.0e})", True


def make_table(curves, flags=None):
    """Return the lines of a table of the stages' results, and the names that differ.

    `curves` maps stages to curves; the others are compared with the first one. `flags`
    maps stages to what `read_flags` returned. Where there is no GPU, the stages of one
    process ran on the same CPU and give the same bits. Ranks and GPUs add in another
    order.
    """
    first, reference = next(iter(curves.items()))
    flags = flags or {}
    on_one_cpu = not count_gpus()
    head = f"{'stage':18} {'epochs':>6} {'last loss':>10} {'test':>12}   from {first}"
    lines = [head]
    differ = []
    for stage, curve in curves.items():
        loss, correct, total = curve[-1]
        same_bits = on_one_cpu and not {first, stage} & set(CPU_PROCESSES)
        verdict, equal = judge(curve, reference, same_bits)
        if not equal:
            differ.append(stage)
            others = other_flags(flags.get(stage, {}), flags.get(first, {}), first)
            if others:
                verdict = f"DIFFERENT: run with other flags: {others}"
        test = f"{correct}/{total}"
        lines.append(f"{stage:18} {len(curve):6} {loss:10.6f} {test:>12}   {verdict}")
    if any(len(curve) != len(reference) for curve in curves.values()):
        lines.append(f"Only the epochs that a stage shares with {first} are compared.")
    return lines, differ


def read_curves(top):
    """Return the curves of the stages that have run in a folder: {stage: curve}."""
    curves = {}
    for stage in EVERY.values():
        path = top / stage / "metrics.csv"
        try:
            curve = read(path) if path.exists() else []
        except (ValueError, KeyError, TypeError):
            refuse(f"{path} is no metrics.csv of a stage: run the stage again")
        if curve:
            curves[stage] = curve
    if not curves:
        refuse(f"no stage has run yet in {top}: make all, or one, such as make cpu")
    return curves


def main():
    from tools.run import plots  # which imports this module

    os.environ["MPLBACKEND"] = "agg"  # draws into files, without a display
    end_at_a_closed_pipe()
    os.chdir(ROOT)
    top = Path(sys.argv[1] if sys.argv[1:] else "runs")
    curves = read_curves(top)
    flags = {stage: read_flags(top / stage) for stage in curves}
    lines, differ = make_table(curves, flags)
    print("\n".join(lines))
    absent = ", ".join(stage for stage in STAGES if stage not in curves)
    if absent:
        print(f"not run yet: {absent}")
    verdict = f"{len(curves)} scripts, one loss curve" if len(curves) > 1 else ""
    if differ:
        verdict = f"not one curve: {', '.join(differ)} differ{'s' * (len(differ) == 1)}"
    title = f"{verdict} (not run yet: {absent})" if absent else verdict
    picture = top / "curves.png"
    try:
        plots.plot(curves, title).savefig(picture, dpi=130)
    except OSError as error:
        refuse(f"cannot write {picture}: {error}")
    print(f"drawn in {picture}")
    if differ:
        refuse(verdict)
    if verdict:
        print(verdict)


if __name__ == "__main__":
    main()
