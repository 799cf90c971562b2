"""Promise: `compare` says "one loss curve" of equal curves, and of nothing else."""

import math
import re
import shutil

import pytest

from conftest import call
from tools.run import compare, plots

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


@pytest.mark.parametrize(("curve", "reason"), DIFFERENT)
@pytest.mark.parametrize("same_bits", [True, False])
def test_what_is_different(curve, reason, same_bits):
    verdict, equal = compare.judge(curve, CURVE, same_bits)
    assert not equal
    assert verdict.startswith("DIFFERENT: ")
    assert reason in verdict or (same_bits and "one CPU gives" in verdict)


def test_what_may_be_no_bug_is_said():
    for stage, loss, said in [
        (
            "04_ddp",
            1.0005,
            "; images that came twice, or TF32 (make doctor), can do that",
        ),
        ("02_single_gpu", 1.0005, "; TF32 (make doctor) can do that"),
        ("04_ddp", 1.02, "DIFFERENT: a loss is off by 2.0e-02"),
    ]:
        curves = {"01_cpu": CURVE, stage: changed(1, loss=loss)}
        lines, differ = compare.make_table(curves, one_device=False)
        assert differ == [stage]
        assert lines[2].endswith(said)


TWICE = [  # stage, processes, train images, what is said; None: each image comes once
    (
        "04_ddp",
        3,
        4000,
        "3 ranks cannot share 4000 images evenly, so 2 images came twice",
    ),
    (
        "07_fsdp",
        3,
        1001,
        "3 ranks cannot share 1001 images evenly, so 1 image came twice",
    ),
    (
        "10_hybrid",
        6,
        4000,
        "3 pairs of ranks cannot share 4000 images evenly, so 2 ima",
    ),
    ("04_ddp", 4, 4000, None),
    ("10_hybrid", 4, 4000, None),
    ("08_tensor_parallel", 3, 4000, None),
    ("01_cpu", 1, 4000, None),
]


@pytest.mark.parametrize(("stage", "processes", "train", "said"), TWICE)
def test_images_that_came_twice_are_counted(stage, processes, train, said, data):
    flags = {"processes": str(processes), "data": str(data((train, 997)))}
    found = compare.images_twice(stage, flags)
    if said is None:
        assert found is None
    else:
        assert found.startswith(said)


def test_images_that_came_twice_explain_a_curve(tmp_path):
    """The real thing: 4000 images on 3 ranks."""
    more = ["DATA=data/sample", "EPOCHS=1", "GPUS=cpu", "ARGS=--batch-size 63"]
    for target, stage in ("cpu", "01_cpu"), ("ddp", "04_ddp"):
        words = ["make", target, *more, f"OUT={tmp_path / stage}"]
        if target == "ddp":
            words.append("NPROC=3")
        result = call(words)
        assert result.returncode == 0, result.stderr
    result = call(["make", "compare", f"OUT={tmp_path}"])
    assert result.returncode != 0
    assert re.search(
        r"04_ddp .* DIFFERENT: a loss is off by [\d.e-]+: 04_ddp's 3 ranks cannot "
        r"share "
        "4000 images evenly, so 2 images came twice\n",
        result.stdout,
    )


UNEVEN = [  # epochs of each stage, how that is said, what to run again
    (
        {"01_cpu": 5, "02_single_gpu": 3, "03_dp": 3},
        "01_cpu has 5 epochs, the others have 3",
        "`make cpu`",
    ),
    (
        {"01_cpu": 3, "02_single_gpu": 2, "03_dp": 3, "04_ddp": 1},
        "02_single_gpu has 2 epochs, 04_ddp has 1 epoch, the others have 3",
        "`make single_gpu` and `make ddp`",
    ),
    (
        {"01_cpu": 3, "07_fsdp": 1},
        "07_fsdp has 1 epoch, the other has 3",
        "`make fsdp`",
    ),
]


@pytest.mark.parametrize(("epochs", "said", "again"), UNEVEN)
def test_the_epochs_that_runs_share_are_compared(epochs, said, again):
    whole = [*CURVE, (0.3, 900, 1000), (0.2, 910, 1000)]
    curves = {stage: whole[:count] for stage, count in epochs.items()}
    lines, differ = compare.make_table(curves)
    assert differ == []
    advice = (
        f"only the epochs that they share are compared. To compare all, run {again}"
    )
    assert lines[-1] == f"{said}: {advice} again."
    assert len(lines) == len(curves) + 2
    lines, _ = compare.make_table(dict.fromkeys(epochs, CURVE))
    assert len(lines) == len(curves) + 1


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
        ("06_model_parallel", False, True),
        ("04_ddp", True, True),
        ("05_ddp_inference", True, True),
    ],
)
def test_which_stages_promise_the_same_bits(stage, one_device, equal):
    curves = {"01_cpu": CURVE, stage: changed(3, loss=1 + 1e-12)}
    _, differ = compare.make_table(curves, one_device)
    assert differ == ([] if equal else [stage])


@pytest.mark.parametrize(("gpus", "status"), [(0, 1), (2, 0)])
def test_the_same_bits_are_asked_for_without_gpus_only(
    gpus, status, monkeypatch, tmp_path
):
    """06_model_parallel, which rounds as 01_cpu does only on the same CPU."""
    for stage, curve in ("01_cpu", CURVE), ("06_model_parallel", ROUNDED[0]):
        (tmp_path / stage).mkdir()
        lines = ["epoch,loss,correct,total,seconds"]
        for epoch, row in enumerate(curve, start=1):
            lines.append(",".join(map(str, [epoch, *row, 0.5])))
        (tmp_path / stage / "metrics.csv").write_text("\n".join(lines) + "\n")
    monkeypatch.setattr(compare, "count_gpus", lambda: gpus)
    monkeypatch.setattr("sys.argv", ["compare", str(tmp_path)])
    if status:
        with pytest.raises(
            SystemExit, match="not one curve: 06_model_parallel differs"
        ):
            compare.main()
    else:
        compare.main()


FLAGS = {"epochs": "3", "lr": "0.1", "hidden": "128", "data": "data/mnist"}


def test_other_flags_are_the_reason_of_another_curve():
    curves = {
        "01_cpu": CURVE,
        "03_dp": changed(1, loss=2),
        "04_ddp": changed(1, loss=2),
    }
    other = {**FLAGS, "hidden": "2048", "data": "data/sample", "out": "elsewhere"}
    flags = {"01_cpu": {**FLAGS, "out": "here"}, "03_dp": other, "04_ddp": FLAGS}
    lines, differ = compare.make_table(curves, flags=flags)
    assert differ == ["03_dp", "04_ddp"]
    said = "--hidden 2048 (01_cpu: 128), --data data/sample (01_cpu: data/mnist)"
    assert lines[2].endswith(f"  DIFFERENT: run with other flags: {said}")
    assert lines[3].endswith("DIFFERENT: a loss is off by 1.0e+00")
    lines, differ = compare.make_table({"01_cpu": CURVE, "03_dp": CURVE}, flags=flags)
    assert lines[2].endswith("  equal")  # whatever the flags were
    assert not differ


def test_a_run_by_make_leaves_its_flags(tmp_path):
    words = ["make", "cpu", "DATA=data/sample", "EPOCHS=1", f"OUT={tmp_path}"]
    assert call([*words, "ARGS=--hidden 16"]).returncode == 0
    flags = compare.read_flags(tmp_path)
    assert (flags["hidden"], flags["lr"]) == ("16", "0.1")
    assert (flags["data"], flags["epochs"]) == ("data/sample", "1")
    assert flags["processes"] == "1"
    (tmp_path / "flags.json").touch()  # of a run that did not come to its first epoch
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


def test_make_compare(trained, tmp_path):
    for stage in "01_cpu", "03_dp", "04_ddp":
        shutil.copytree(trained(stage), tmp_path / stage)
    words = ["make", "compare", f"OUT={tmp_path}"]
    result = call(words)
    assert result.returncode == 0, result.stderr
    assert result.stdout.endswith("3 scripts, one loss curve\n")
    assert result.stdout.count("one loss curve") == 1
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
