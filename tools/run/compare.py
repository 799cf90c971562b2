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
    CPU_PROCESSES,
    EVERY,
    ROOT,
    STAGES,
    end_at_a_closed_pipe,
    refuse,
)

COUNTS = 0.002  # fraction of the test images that rounding may move to right or wrong
SMALL = 0.005  # relative error that TF32, or images that count twice, may cause
WHOLE_SET = "08_tensor_parallel", "09_pipeline"  # every rank has all images
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


def images_twice(stage, flags):
    """Return in a few words which images a run had twice, or None.

    DistributedSampler gives every rank the same number of images. To do so it may
    repeat the first images, which then count twice in the curve.
    """
    shards = int(flags.get("processes", 1))
    who = "ranks"
    if stage in WHOLE_SET:
        shards = 1
    if stage == "10_hybrid":
        shards //= 2
        who = "pairs of ranks"  # both ranks of a pair have the same images
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
    """Return what else may have caused a small error, as the end of a verdict.

    `flags` maps stages to what `read_flags` returned; `stage` is compared with `first`.
    """
    for name in stage, first:
        twice = images_twice(name, flags.get(name, {}))
        if twice:
            return f": {name}'s {twice}"
    if stage in CPU_PROCESSES and "processes" not in flags.get(stage, {}):
        return "; images that came twice, or TF32 (make doctor), can do that"
    return "; TF32 (make doctor) can do that"


def judge(curve, reference, same_bits, because=""):
    """Compare two curves, as `read` returns them: return (verdict, are they equal?).

    Only the epochs that both have count. With `same_bits`, losses and counts must be
    equal to the last digit, which is true on CPUs only. Otherwise a loss may have the
    relative error that `allowed` returns, and a count may differ by COUNTS of the test
    images. `because` ends the verdict if the error of a loss is small.
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
            return text + (because if error < SMALL else ""), False
        if abs(one[1] - other[1]) > COUNTS * one[2]:
            return f"DIFFERENT: {images} more or fewer images are right", False
    return f"equal to rounding ({error:.0e})", True


def join_names(names):
    """Return names as in a sentence: `a`, `a and b`, `a, b and c`."""
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def epochs_in_words(epochs):
    return f"{epochs} epoch{'s' * (epochs != 1)}"


def uneven_epochs(curves):
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
            said.append(f"{join_names(stages)} {has} {epochs_in_words(epochs)}")
            again += [f"`make {BY_NAME[stage].target}`" for stage in stages]
    others = "the others have" if len(by_epochs[usual]) > 1 else "the other has"
    return (
        f"{', '.join(said)}, {others} {usual}: only the epochs that they share are "
        f"compared. To compare all, run {join_names(again)} again."
    )


def all_on_one_device():
    """Return whether the stages of one process ran on the same CPU: there is no GPU."""
    return not count_gpus()


def make_table(curves, one_device=True, flags=None):
    """Return the lines of a table of the stages' results, and the names that differ.

    `curves` maps stages to curves; the others are compared with the first one. `flags`
    maps stages to what `read_flags` returned. `one_device` says that the stages of one
    process ran on the same CPU. Then they give the same bits. Ranks and GPUs add in
    another order.
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
        same_bits = one_device and not {first, stage} & set(CPU_PROCESSES)
        verdict, equal = judge(curve, reference, same_bits, because)
        if not equal:
            differ.append(stage)
            others = other_flags(flags.get(stage, {}), flags.get(first, {}), first)
            if others:
                verdict = f"DIFFERENT: run with other flags: {others}"
        test = f"{correct}/{total}"
        lines.append(f"{stage:18} {len(curve):6} {loss:10.6f} {test:>12}   {verdict}")
    note = uneven_epochs(curves)
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
    lines, differ = make_table(curves, all_on_one_device(), flags)
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
