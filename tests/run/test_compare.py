"""Promise: `compare` says "one loss curve" of equal curves, and of nothing else."""

import math
import os
import shutil

import pytest

from tools.run import compare, launch, plots
from tools.run.plan import make_plan

CURVE = [(1.5, 760, 1000), (0.6, 850, 1000), (0.4, 880, 1000)]


def changed(epoch, **change):
    """Return CURVE with a loss times `loss` or a count plus `correct`, in one epoch."""
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
    (changed(1, loss=0.999)[:2], "a loss is off by 1.0e-03"),
    ([(loss, correct, 1001) for loss, correct, _ in CURVE], "number of test images"),
]
ROUNDED = [
    changed(1, loss=1 + 5e-6),
    changed(2, loss=1 - 1e-4),
    changed(3, loss=1.003),
    changed(3, correct=2),
]


def test_what_is_different():
    assert len(DIFFERENT) == 10
    for curve, reason in DIFFERENT:
        verdict, equal = compare.judge(curve, CURVE, same_bits=False)
        assert not equal
        assert verdict.startswith("DIFFERENT: ")
        assert reason in verdict
        assert not compare.judge(curve, CURVE, same_bits=True)[1]


def test_what_may_be_no_bug_is_said():
    for loss, is_small in (1.0005, True), (1.02, False):
        verdict, _ = compare.judge(changed(1, loss=loss), CURVE, same_bits=False)
        assert ("; TF32 (make doctor), or images that" in verdict) == is_small


def test_the_epochs_that_runs_share_are_compared():
    whole = [*CURVE, (0.3, 900, 1000)]
    curves = {"01_cpu": whole, "03_dp": CURVE, "04_ddp": whole[:1]}
    lines, differ = compare.make_table(curves)
    assert differ == []
    assert lines[-1] == "Only the epochs that a stage shares with 01_cpu are compared."
    assert len(lines) == 5
    lines, _ = compare.make_table(dict.fromkeys(curves, CURVE))
    assert len(lines) == 4


def test_a_line_that_a_kill_has_cut_does_not_count(tmp_path):
    path = tmp_path / "metrics.csv"
    whole = (
        "epoch,loss,correct,total,seconds\n1,1.5,760,1000,0.25\n2,0.6,850,1000,0.25\n"
    )
    first = whole.index("\n2") + 1
    for end in range(len(whole) + 1):
        path.write_text(whole[:end])
        expected = CURVE[: (end >= first) + (end == len(whole))]
        assert compare.read(path) == expected


def test_rounding_counts_only_where_the_same_bits_are_promised():
    assert len(ROUNDED) == 4
    for curve in ROUNDED:
        assert compare.judge(curve, CURVE, same_bits=False)[1]
        assert not compare.judge(curve, CURVE, same_bits=True)[1]
    assert compare.judge(list(CURVE), CURVE, same_bits=True) == ("equal", True)


def test_a_curve_of_nan_is_not_even_equal_to_itself():
    broken = changed(1, loss=math.nan)
    assert not compare.judge(broken, broken, same_bits=False)[1]


@pytest.mark.parametrize(
    ("stage", "gpus", "equal"),
    [
        ("06_model_parallel", 0, False),
        ("06_model_parallel", 2, True),
        ("05_ddp_inference", 0, True),
    ],
)
def test_one_process_promises_the_same_bits_on_cpus(stage, gpus, equal, monkeypatch):
    monkeypatch.setattr(compare, "count_gpus", lambda: gpus)
    curves = {"01_cpu": CURVE, stage: changed(3, loss=1 + 1e-12)}
    _, differ = compare.make_table(curves)
    assert differ == ([] if equal else [stage])


FLAGS = {"epochs": "3", "lr": "0.1", "hidden": "128", "data": "data/mnist"}


def test_other_flags_are_the_reason_of_another_curve():
    curves = {
        "01_cpu": CURVE,
        "03_dp": changed(1, loss=2),
        "04_ddp": changed(1, loss=2),
    }
    other = {**FLAGS, "hidden": "2048", "data": "data/sample", "out": "elsewhere"}
    flags = {"01_cpu": {**FLAGS, "out": "here"}, "03_dp": other, "04_ddp": FLAGS}
    lines, differ = compare.make_table(curves, flags)
    assert differ == ["03_dp", "04_ddp"]
    said = "--hidden 2048 (01_cpu: 128), --data data/sample (01_cpu: data/mnist)"
    assert lines[2].endswith(f"  DIFFERENT: run with other flags: {said}")
    assert lines[3].endswith("DIFFERENT: a loss is off by 1.0e+00")
    lines, differ = compare.make_table({"01_cpu": CURVE, "03_dp": CURVE}, flags)
    assert lines[2].endswith("  equal")  # whatever the flags were
    assert not differ


def test_a_launch_leaves_its_flags(tmp_path):
    settings = {"OUT": str(tmp_path), "EPOCHS": "1", "ARGS": "--hidden 16"}
    launch.prepare_folder(make_plan("01_cpu", {"DATA": "data/sample", **settings}))
    (tmp_path / "metrics.csv").touch()
    flags = compare.read_flags(tmp_path)
    assert (flags["hidden"], flags["lr"]) == ("16", "0.1")
    assert (flags["data"], flags["epochs"]) == ("data/sample", "1")
    os.utime(tmp_path / "metrics.csv", (0, 0))  # of an earlier run
    assert compare.read_flags(tmp_path) == {}


def test_the_picture_shows_what_the_eye_does_not_see(monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "agg")
    lost = [(loss * 1.008, *counts) for loss, *counts in CURVE]
    curves = {"01_cpu": CURVE, "03_dp": CURVE, "04_ddp": lost}
    figure = plots.plot(curves, "not one curve: 04_ddp differs")
    assert figure.get_suptitle() == "not one curve: 04_ddp differs"
    right = figure.axes[2]
    assert right.get_yscale() == "log"
    away = {line.get_label(): line.get_ydata() for line in right.lines}
    assert list(away["03_dp"]) == [plots.ZERO] * 3
    assert list(away["04_ddp"]) == pytest.approx([0.008] * 3)
    assert right.get_yticks()[0] == plots.ZERO
    assert right.get_yticklabels()[0].get_text() == "0"
    places = {text.get_text().strip(): text.get_position()[1] for text in right.texts}
    assert plots.ZERO < places["rounding"] < compare.allowed(3) < places["a bug"]


def test_a_table_a_picture_and_a_verdict(trained, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.setattr("sys.argv", ["compare", str(tmp_path)])
    for stage in "01_cpu", "03_dp", "04_ddp":
        shutil.copytree(trained(stage), tmp_path / stage)
    compare.main()
    printed = capsys.readouterr().out
    assert printed.endswith("\n3 scripts, one loss curve\n")
    absent = "02_single_gpu, 05_ddp_inference, 06_model_parallel"
    assert f"not run yet: {absent}" in printed
    assert (tmp_path / "curves.png").stat().st_size > 10_000

    table = tmp_path / "03_dp" / "metrics.csv"
    _, loss, _ = table.read_text().splitlines()[1].split(",", 2)
    table.write_text(table.read_text().replace(loss, "nan"))
    table = tmp_path / "04_ddp" / "metrics.csv"
    table.write_text(table.read_text().replace(",997,", ",996,"))
    with pytest.raises(SystemExit, match="^not one curve: 03_dp, 04_ddp differ$"):
        compare.main()
    assert "one loss curve" not in capsys.readouterr().out
