"""`make compare`: compare the stages' curves in a folder."""

import csv
import math
import os
from contextlib import suppress
from pathlib import Path

from tools.run import plots, results, stages

COUNTS = 0.002  # fraction of test images whose result rounding may change
SMALL = 0.005  # relative error that CAUSES may explain
CAUSES = "TF32 or images repeated by DistributedSampler can do this"
# The second curve uses float64, where rounding changes 150 steps by 7e-15.
EXACT = 1e-9  # relative


def allowed(epoch):
    """Return the relative error that rounding may cause in an epoch's loss (from 1).

    The order of float32 sums changes with ranks, with threads and on a GPU, and so do
    the last digits. Training amplifies that. Measured on all of MNIST: 8e-7, 4e-5 and
    3e-4 in the first three epochs, at most 9e-4 in ten epochs, and 6 of 10,000 test
    images; on data/sample, at most 2e-4 in 30. A bug shows in the first epoch.
    """
    return min(1e-5 * 20 ** (epoch - 1), 5e-3)


def read(path):
    """Return metrics.csv as a list of (loss, correct, total), one per line.

    A line covers an epoch, or several steps of the second curve.

    Skips a last line without a newline, left by a run killed while writing it. Raises
    ValueError, KeyError or TypeError if no run can have written the file.
    """
    whole, _, _ = Path(path).read_text().rpartition("\n")
    curve = []
    for row in csv.DictReader(whole.splitlines()):
        curve.append((float(row["loss"]), int(row["correct"]), int(row["total"])))
        if curve[-1][2] < 1:
            raise ValueError(f"{path}: an epoch without test images")
    return curve


def judge(curve, reference, is_second=False):
    """Compare two curves returned by `read`; return (verdict, whether they are equal).

    Only epochs in both curves count. Losses may differ by the relative error that
    `allowed` returns and counts by COUNTS of the test images. In the second curve,
    losses may differ by EXACT and counts must be equal.
    """
    pairs = list(zip(curve, reference, strict=False))
    counted = "tokens" if is_second else "test images"
    if not all(math.isfinite(loss) for loss, _, _ in curve):
        return "DIFFERENT: a loss is not a number", False
    if any(one[2] != other[2] for one, other in pairs):
        return f"DIFFERENT: not the same number of {counted}", False
    if all(one == other for one, other in pairs):
        return "equal", True
    error = max(abs(one[0] - other[0]) / (abs(other[0]) or 1) for one, other in pairs)
    apart = max(abs(one[1] - other[1]) for one, other in pairs)
    for epoch, (one, other) in enumerate(pairs, start=1):
        rounding = EXACT if is_second else allowed(epoch)
        if not math.isclose(one[0], other[0], rel_tol=rounding):
            text = f"DIFFERENT: a loss is off by {error:.1e}"
            if is_second:
                return f"{text}; float32 can do this" if error < 1e-5 else text, False
            return f"{text}; {CAUSES}" if error < SMALL else text, False
        if abs(one[1] - other[1]) > (0 if is_second else COUNTS * one[2]):
            return f"DIFFERENT: {apart} more or fewer {counted} correct", False
    return f"equal ({error:.0e})", True


def other_flags(given, expected):
    """Return the differing flags that change the curve; '' if flags are unknown."""
    if not given or not expected:
        return ""
    others = [name for name in results.SHARED if given.get(name) != expected.get(name)]
    return ", ".join(f"{name}={given.get(name)}" for name in others)


def make_table(curves, flags=None):
    """Return a table's lines, which fit on a phone, and the stages that differ.

    `curves` maps stages to curves, compared with the first one, and `flags` to flags.
    """
    first, reference = next(iter(curves.items()))
    is_second = stages.BY_NAME[first].room == "transformer"
    flags = flags or {}
    rows, test = ("lines", "copied") if is_second else ("epochs", "test")
    after = f"after {len(reference)} {rows}"
    wide = max(map(len, [after, *curves]))
    lines = [f"{after:{wide}} {'loss':>8} {test:>8} from {first}"]
    differ = []
    for stage, curve in curves.items():
        verdict, equal = judge(curve, reference, is_second)
        if not equal:
            differ.append(stage)
            others = other_flags(flags.get(stage), flags.get(first))
            verdict = f"DIFFERENT: run with {others}" if others else verdict
        if len(curve) != len(reference):
            verdict += f" in shared {rows}; has {len(curve)}"
        loss, correct, total = curve[-1]
        test = f"{correct}/{total}"
        lines.append(f"{stage:{wide}} {loss:8.6f} {test:>8} {verdict}")
    return lines, differ


def read_runs(top):
    """Return the curves, flags and failures of a folder's runs, each by stage.

    make creates a file `unfinished` when a run starts and removes it on success.
    """
    curves = {}
    flags = {}
    failures = {}
    for stage in stages.EVERY.values():
        path = top / stage / results.CURVE
        curve = []
        with suppress(OSError, ValueError, KeyError, TypeError):
            curve = read(path)
        if (top / stage / results.MARK).exists():
            failures[stage] = "its last run failed, was stopped or is still running"
        elif curve:
            flags[stage] = results.read_flags(top / stage)
            curves[stage] = curve
        elif path.exists():
            failures[stage] = f"no readable epoch in {path}. Run it again"
    if not curves and not failures:
        stages.refuse(f"no results in {top}/ yet. Try: make cpu")
    return curves, flags, failures


def draw(curves, differ, steps=()):
    """Return a figure of curves that should match; those in `differ` do not."""
    first, reference = next(iter(curves.items()))
    verdict = f"{len(curves)} scripts, one loss curve"
    if len(curves) == 1:
        verdict = f"The loss curve of {first}"
    if differ:
        verdict = f"Not one curve: check {', '.join(differ)}"
    is_second = stages.BY_NAME[first].room == "transformer"
    lines = range(1, len(reference) + 1)
    limits = [EXACT if is_second else allowed(line) for line in lines]
    row = "line" if is_second else "epoch"
    return plots.plot(curves, limits, verdict, row, steps)


def main(out):
    """Compare the runs in a folder, by default runs/."""
    os.environ["MPLBACKEND"] = "agg"  # draw to files without a display
    top = Path(out or "runs")
    found, flags, failures = read_runs(top)
    differ = []
    groups = {}  # first stage of a curve -> stages that must match it
    for stage, curve in found.items():
        groups.setdefault(stages.BY_NAME[stage].curve, {})[stage] = curve
    for first, curves in groups.items():
        lines, others = make_table(curves, flags)
        differ += others
        print("\n".join(lines))
        stages.refuse_unwritable(top, "Choose another folder: OUT=DIR")
        path = top / ("curves.png" if first == "01_cpu" else f"curves_{first}.png")
        draw(curves, others).savefig(path, dpi=130)
        print(f"drawn in {path}")
    begun = {*found, *failures}
    second = stages.TRANSFORMER.values()
    for wanted, of_curve in (stages.STAGES, stages.MNIST.values()), (second, second):
        absent = [stage for stage in wanted if stage not in begun]
        if absent and not begun.isdisjoint(of_curve):
            print(f"not run yet: {', '.join(absent)}")
    for stage, reason in failures.items():
        print(f"{stage}: {reason}")
    if differ or failures:
        stages.refuse(f"not one curve: check {', '.join([*differ, *failures])}")
    for curves in groups.values():
        if len(curves) > 1:
            print(f"{len(curves)} scripts, one loss curve")
