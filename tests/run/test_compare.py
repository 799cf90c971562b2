"""Promise: `compare` says "one loss curve" of equal curves, and of nothing else."""

import math
import shutil

import pytest

from conftest import call
from tools.run import compare

CURVE = [(1.5, 760, 1000), (0.6, 850, 1000), (0.4, 880, 1000)]


def changed(epoch, **change):
    """Return CURVE with a loss times `loss`, or a count plus `correct`, in one epoch."""
    curve = list(CURVE)
    loss, correct, total = curve[epoch - 1]
    row = loss * change.get("loss", 1), correct + change.get("correct", 0), total
    curve[epoch - 1] = row
    return curve


DIFFERENT = [  # also where rounding is allowed
    (changed(1, loss=math.nan), "not a number"),
    (changed(3, loss=math.inf), "not a number"),
    (changed(1, loss=1.00002), "a loss is off by 2.0e-05"),
    (changed(1, loss=0.999), "a loss is off by 1.0e-03"),
    (changed(2, loss=1.002), "a loss is off by 2.0e-03"),
    (changed(3, loss=1.02), "a loss is off by 2.0e-02"),
    (changed(1, correct=3), "3 more or fewer images are right"),
    (changed(3, correct=-780), "780 more or fewer images are right"),
    (CURVE[:2], "another number of epochs"),
    ([*CURVE, CURVE[-1]], "another number of epochs"),
    ([(loss, correct, 1001) for loss, correct, _ in CURVE], "or of test images"),
]
ROUNDED = [
    changed(1, loss=1 + 5e-6),
    changed(2, loss=1 - 1e-4),
    changed(3, loss=1.003),
    changed(3, correct=2),
]


@pytest.mark.parametrize(("curve", "reason"), DIFFERENT)
@pytest.mark.parametrize("same_bits", [True, False])
def test_what_is_different(curve, reason, same_bits):
    verdict, equal = compare.judge(curve, CURVE, same_bits)
    assert not equal
    assert verdict.startswith("DIFFERENT: ")
    assert reason in verdict or (same_bits and "one CPU gives" in verdict)


def test_what_may_be_no_bug_is_said():
    for loss, said in (1.0005, True), (1.02, False):
        verdict, equal = compare.judge(changed(1, loss=loss), CURVE, same_bits=False)
        assert not equal
        assert ("; images twice (a run's first line) or TF32" in verdict) == said


@pytest.mark.parametrize("curve", ROUNDED)
def test_rounding_counts_only_where_the_same_bits_are_promised(curve):
    assert compare.judge(curve, CURVE, same_bits=False)[1]
    assert not compare.judge(curve, CURVE, same_bits=True)[1]


def test_equal_is_equal():
    assert compare.judge(list(CURVE), CURVE, same_bits=True) == ("equal", True)


def test_a_curve_of_nan_is_not_even_equal_to_itself():
    broken = changed(1, loss=math.nan)
    assert not compare.judge(broken, broken, same_bits=False)[1]


@pytest.mark.parametrize(
    ("stage", "one_device", "equal"),
    [
        ("03_dp", True, False),
        ("06_model_parallel", True, False),
        ("03_dp", False, True),  # on GPUs
        ("04_ddp", True, True),
        ("05_ddp_inference", True, True),
    ],
)
def test_which_stages_promise_the_same_bits(stage, one_device, equal):
    curves = {"01_cpu": CURVE, stage: changed(3, loss=1 + 1e-12)}
    _, differ = compare.table(curves, one_device)
    assert differ == ([] if equal else [stage])


def test_make_compare(trained, tmp_path):
    for stage in "01_cpu", "03_dp", "04_ddp":
        shutil.copytree(trained(stage), tmp_path / stage)
    words = ["make", "compare", f"OUT={tmp_path}"]
    result = call(words)
    assert result.returncode == 0, result.stderr
    assert result.stdout.endswith("3 scripts, one loss curve\n")
    absent = "02_single_gpu, 05_ddp_inference, 06_model_parallel"
    assert f"not run yet: {absent}" in result.stdout
    assert (tmp_path / "curves.png").stat().st_size > 10_000

    table = tmp_path / "03_dp" / "metrics.csv"
    _, loss, _ = table.read_text().splitlines()[1].split(",", 2)
    table.write_text(table.read_text().replace(loss, "nan"))
    table = tmp_path / "04_ddp" / "metrics.csv"
    table.write_text(table.read_text().replace(",997,", ",996,"))
    result = call(words)
    assert result.returncode != 0
    assert result.stderr.startswith("not one curve: 03_dp, 04_ddp differ\n")
    assert "one loss curve" not in result.stdout
