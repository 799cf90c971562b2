"""`make compare`: compare the stages' curves in a folder."""

import csv
import math
import os
from contextlib import suppress
from pathlib import Path

from tools.run import plots, results, stages

COUNTS = 0.002  # fraction of the test images that rounding may move to right or wrong
SMALL = 0.005  # relative error that the following may cause
CAUSES = "TF32, or images that DistributedSampler repeats, can do that"
# The second curve is computed in float64, where rounding moves 150 steps by 7e-15.
EXACT = 1e-9  # relative


def allowed(epoch):
    """Return the relative error that rounding may cause in a loss of an epoch (from 1).

    Float32 sums in another order differ in the last digits: on several ranks, with more
    threads, on a GPU. Training amplifies that. Measured on all of MNIST: 8e-7, 4e-5 and
    3e-4 in the first three epochs, 9e-4 at most in ten epochs, and 6 of 10,000 test
    images; on data/sample, 2e-4 at most in 30. A bug shows in the first epoch.
    """
    return min(1e-5 * 20 ** (epoch - 1), 5e-3)


def read(path):
    """Return metrics.csv as a list of (loss, correct, total), one for each line.

    A line is an epoch's, or that of some steps of the second curve.

    A last line without its end is left out: a run was killed while it wrote that line.
    Raises ValueError and its like where a run cannot have written it.
    """
    whole, _, _ = Path(path).read_text().rpartition("\n")
    curve = []
    for row in csv.DictReader(whole.splitlines()):
        curve.append((float(row["loss"]), int(row["correct"]), int(row["total"])))
        if curve[-1][2] < 1:
            raise ValueError(f"{path}: an epoch without test images")
    return curve


def judge(curve, reference, is_second=False):
    """Compare two curves, as `read` returns them: return (verdict, are they equal?).

    Only the epochs that both have count. A loss may have the relative error that
    `allowed` returns, and a count may differ by COUNTS of the test images; in the
    second curve, EXACT and no token.
    """
    pairs = list(zip(curve, reference, strict=False))
    counted = "tokens" if is_second else "test images"
    if not all(math.isfinite(loss) for loss, _, _ in curve):
        return "DIFFERENT: a loss is not a number", False
    if any(one[2] != other[2] for one, other in pairs):
        return f"DIFFERENT: another number of {counted}", False
    if all(one == other for one, other in pairs):
        return "equal", True
    error = max(abs(one[0] - other[0]) / (abs(other[0]) or 1) for one, other in pairs)
    apart = max(abs(one[1] - other[1]) for one, other in pairs)
    for epoch, (one, other) in enumerate(pairs, start=1):
        rounding = EXACT if is_second else allowed(epoch)
        if not math.isclose(one[0], other[0], rel_tol=rounding):
            text = f"DIFFERENT: a loss is off by {error:.1e}"
            if is_second:
                return f"{text}; float32 can do that" if error < 1e-5 else text, False
            return f"{text}; {CAUSES}" if error < SMALL else text, False
        if abs(one[1] - other[1]) > (0 if is_second else COUNTS * one[2]):
            return f"DIFFERENT: {apart} more or fewer {counted} are right", False
    return f"equal to rounding ({error:.0e})", True


def other_flags(given, expected):
    """Return the flags that move the curve and differ; '' if they are not known."""
    if not given or not expected:
        return ""
    others = [name for name in results.SHARED if given.get(name) != expected.get(name)]
    return ", ".join(f"{name}={given.get(name)}" for name in others)


def make_table(curves, flags=None):
    """Return the lines of a table of the stages' results, and the names that differ.

    `curves` maps stages to curves; the others are compared with the first one. `flags`
    maps stages to {flag: text}, where they are known.
    """
    first, reference = next(iter(curves.items()))
    is_second = stages.BY_NAME[first].room == "transformer"
    flags = flags or {}
    rows, test = ("lines", "copied") if is_second else ("epochs", "test")
    head = f"{'stage':20} {rows:>6} {'last loss':>10} {test:>12}   from {first}"
    lines = [head]
    differ = []
    for stage, curve in curves.items():
        verdict, equal = judge(curve, reference, is_second)
        if not equal:
            differ.append(stage)
            others = other_flags(flags.get(stage), flags.get(first))
            verdict = f"DIFFERENT: run with {others}" if others else verdict
        loss, correct, total = curve[-1]
        test = f"{correct}/{total}"
        lines.append(f"{stage:20} {len(curve):6} {loss:10.6f} {test:>12}   {verdict}")
    if any(len(curve) != len(reference) for curve in curves.values()):
        lines.append(f"Only the {rows} that a stage shares with {first} are compared.")
    return lines, differ


def read_runs(top):
    """Return what has run in a folder: curves, flags and failures, each by stage.

    A run that make has started has a file `unfinished` until it ends well.
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
            failures[stage] = "its last run failed, was stopped or still runs"
        elif curve:
            flags[stage] = results.read_flags(top / stage)
            curves[stage] = curve
        elif path.exists():
            failures[stage] = f"{path} has no epoch that can be read: run it again"
    if not curves and not failures:
        stages.refuse(f"no stage has run yet in {top}: make all, or make cpu, say")
    return curves, flags, failures


def draw(curves, differ):
    """Return a figure of curves that belong together; those of `differ` part."""
    first, reference = next(iter(curves.items()))
    verdict = f"{len(curves)} scripts, one loss curve"
    if len(curves) == 1:
        verdict = f"The loss curve of {first}"
    if differ:
        verdict = f"Not one curve: look at {', '.join(differ)}"
    is_second = stages.BY_NAME[first].room == "transformer"
    lines = range(1, len(reference) + 1)
    limits = [EXACT if is_second else allowed(line) for line in lines]
    return plots.plot(curves, limits, verdict)


def main(out):
    """Compare what has run in a folder, a text; without one, in runs/."""
    os.environ["MPLBACKEND"] = "agg"  # draws into files, without a display
    top = Path(out or "runs")
    found, flags, failures = read_runs(top)
    differ = []
    groups = {}  # the first stage of a curve -> those that have to have it
    for stage, curve in found.items():
        groups.setdefault(stages.BY_NAME[stage].curve, {})[stage] = curve
    for first, curves in groups.items():
        lines, others = make_table(curves, flags)
        differ += others
        print("\n".join(lines))
        stages.refuse_unwritable(top, "name another folder, OUT=DIR")
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
        stages.refuse(f"not one curve: look at {', '.join([*differ, *failures])}")
    for curves in groups.values():
        if len(curves) > 1:
            print(f"{len(curves)} scripts, one loss curve")
