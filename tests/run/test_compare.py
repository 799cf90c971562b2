"""Promise: `compare` says "one loss curve" of equal curves, and of nothing else."""

import math
import shutil

import pytest

from conftest import call
from tools.run import compare, plots

CURVE = [(1.5 / epoch, 760 + epoch, 1000) for epoch in range(1, 31)]


def changed(epoch, loss=1, correct=0):
    """Return CURVE with a loss times `loss`, a count plus `correct`, in one epoch."""
    rows = list(CURVE)
    old, count, total = rows[epoch - 1]
    rows[epoch - 1] = old * loss, count + correct, total
    return rows


@pytest.mark.parametrize(
    ("curve", "reason"),
    [
        (changed(1, loss=math.nan), "a loss is not a number"),
        (changed(30, loss=math.inf), "a loss is not a number"),
        (changed(1, loss=1.00002), "a loss is off by 2.0e-05; TF32, or images that"),
        (changed(1, loss=0.999)[:2], "a loss is off by 1.0e-03; TF32, or images that"),
        (changed(2, loss=1.002), "a loss is off by 2.0e-03; TF32, or images that"),
        (changed(3, loss=1.02), "a loss is off by 2.0e-02"),
        (changed(5, loss=1.5), "a loss is off by 5.0e-01"),
        (changed(10, loss=1.01), "a loss is off by 1.0e-02"),
        (changed(30, loss=0.99), "a loss is off by 1.0e-02"),
        (changed(1, correct=3), "3 more or fewer images are right"),
        (changed(30, correct=-780), "780 more or fewer images are right"),
        ([(*row[:2], 1001) for row in CURVE], "another number of test images"),
    ],
)
def test_what_is_different(curve, reason):
    verdict, equal = compare.judge(curve, CURVE)
    assert not equal
    assert verdict.startswith(f"DIFFERENT: {reason}")
    assert ("TF32" in verdict) == ("TF32" in reason)
    assert not compare.judge(CURVE, curve)[1] or len(curve) < 30


@pytest.mark.parametrize(
    ("epoch", "apart"),
    [(1, 5e-6), (2, 1e-4), (3, 3e-3), (5, 1e-3), (10, 1e-3), (30, 3e-4)],
)
@pytest.mark.parametrize("stage", ["02_single_gpu", "04_ddp"])
def test_what_rounding_does_is_equal(stage, epoch, apart):
    """At most 2e-4 and one image in 30 epochs of the sample, on 1, 2 and 4 ranks.

    One process with two threads was as far from one with one thread.
    """
    for sign in 1, -1:
        curve = changed(epoch, loss=1 + sign * apart, correct=2 * sign)
        lines, differ = compare.make_table({"01_cpu": CURVE, stage: curve})
        assert differ == []
        assert lines[1].endswith("   equal")
        assert "   equal to rounding (" in lines[2]


def test_a_curve_of_nan_is_not_even_equal_to_itself():
    broken = changed(1, loss=math.nan)
    assert not compare.judge(broken, broken)[1]


def test_the_epochs_that_runs_share_are_compared():
    curves = {"01_cpu": CURVE, "03_dp": CURVE[:3], "04_ddp": CURVE[:1]}
    lines, differ = compare.make_table(curves)
    assert differ == []
    assert lines[-1] == "Only the epochs that a stage shares with 01_cpu are compared."
    assert len(compare.make_table(dict.fromkeys(curves, CURVE))[0]) == 4


def test_a_line_that_a_kill_has_cut_does_not_count(tmp_path):
    path = tmp_path / "metrics.csv"
    first = "epoch,loss,correct,total,seconds\n1,1.5,761,1000,0.25\n"
    whole = first + "2,0.75,762,1000,0.25\n"
    for end in range(len(whole) + 1):
        path.write_text(whole[:end])
        epochs = (end >= len(first)) + (end == len(whole))
        assert compare.read(path) == CURVE[:epochs]


def test_other_flags_are_the_reason_of_another_curve():
    bug = changed(1, loss=2)
    curves = {"01_cpu": CURVE, "03_dp": bug, "04_ddp": bug}
    usual = {"epochs": "3", "lr": "0.1", "hidden": "128", "data": "data/sample"}
    other = {**usual, "hidden": "2048", "epochs": "5", "out": "elsewhere"}
    flags = {"01_cpu": usual, "03_dp": other, "04_ddp": usual}
    lines, _ = compare.make_table(curves, flags)
    assert lines[2].endswith("   DIFFERENT: run with hidden=2048")
    assert lines[3].endswith("   DIFFERENT: a loss is off by 1.0e+00")
    lines, differ = compare.make_table({"01_cpu": CURVE, "03_dp": CURVE}, flags)
    assert lines[2].endswith("   equal")
    assert differ == []


def test_the_picture_shows_what_the_eye_does_not_see(monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "agg")
    lost = [(loss * 1.008, *counts) for loss, *counts in CURVE]
    right = plots.plot({"01_cpu": CURVE, "03_dp": CURVE, "04_ddp": lost}).axes[2]
    assert right.get_yscale() == "log"
    distances = {line.get_label(): list(line.get_ydata()) for line in right.lines}
    assert distances["03_dp"] == [plots.ZERO] * 30
    assert distances["04_ddp"] == pytest.approx([0.008] * 30)


UNREADABLE = "03_dp: {}/03_dp/metrics.csv has no epoch that can be read: run it again"


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("", "", None),
        (",997,", ",996,", "DIFFERENT: another number of test images"),
        ("epoch,loss", "epoch,los", UNREADABLE),
        (",997,", ",many,", UNREADABLE),
        ("\n", " ", UNREADABLE),
    ],
)
def test_no_stage_is_left_out_in_silence(old, new, reason, trained, tmp_path):
    for stage in "01_cpu", "03_dp", "04_ddp":
        shutil.copytree(trained(stage), tmp_path / stage)
    path = tmp_path / "03_dp" / "metrics.csv"
    path.write_bytes(path.read_bytes().replace(old.encode(), new.encode()))
    (tmp_path / "06_model_parallel").mkdir()  # nothing has run in there
    result = call(["make", "compare", f"OUT={tmp_path}"])
    absent = "not run yet: 02_single_gpu, 05_ddp_inference, 06_model_parallel\n"
    assert absent in result.stdout
    assert (tmp_path / "curves.png").stat().st_size > 10_000
    if reason is None:
        assert result.returncode == 0, result.stderr
        assert result.stdout.endswith("\n3 scripts, one loss curve\n")
    else:
        assert result.returncode != 0
        assert reason.format(tmp_path) in result.stdout
        assert "one loss curve" not in result.stdout
        assert result.stderr.startswith("not one curve: look at 03_dp\n")


@pytest.mark.parametrize("stage", ["04_ddp", "05_ddp_inference"])
def test_a_run_that_did_not_end_well_is_no_green(stage, trained, tmp_path):
    """What lies there is an older run's (04), or nothing (05)."""
    for ran in "01_cpu", "04_ddp":
        shutil.copytree(trained(ran), tmp_path / ran)
    (tmp_path / stage).mkdir(exist_ok=True)
    (tmp_path / stage / "unfinished").touch()
    result = call(["make", "compare", f"OUT={tmp_path}"])
    assert result.returncode != 0
    assert f"\n{stage}: its last run failed, was stopped or still" in result.stdout
    assert result.stderr.startswith(f"not one curve: look at {stage}\n")
