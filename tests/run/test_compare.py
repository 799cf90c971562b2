"""Promise: `compare` says "one loss curve" only if the curves are equal."""

import math

import pytest
from matplotlib.figure import Figure

from tools.run import compare, results
from tools.run.plan import make_plan

CURVE = [(1.5 / epoch, 760 + epoch, 1000) for epoch in range(1, 31)]


def changed(epoch, loss=1, correct=0):
    """Return CURVE with one epoch's loss times `loss` and its count plus `correct`."""
    rows = list(CURVE)
    old, count, total = rows[epoch - 1]
    rows[epoch - 1] = old * loss, count + correct, total
    return rows


@pytest.mark.parametrize(
    ("curve", "reason"),
    [
        (changed(1, loss=math.nan), "a loss is not a number"),
        (changed(1, loss=1.00002), "a loss is off by 2.0e-05; TF32 or images repe"),
        (changed(3, loss=1.02), "a loss is off by 2.0e-02"),
        (changed(30, loss=0.99), "a loss is off by 1.0e-02"),
        (changed(1, correct=3), "3 more or fewer test images correct"),
        (changed(1, correct=-3), "3 more or fewer test images correct"),
        (changed(30, correct=-3), "3 more or fewer test images correct"),
        (changed(1, loss=0.99998), "a loss is off by 2.0e-05; TF32 or images repe"),
        ([(*row[:2], 1001) for row in CURVE], "not the same number of test images"),
    ],
)
def test_what_is_different(curve, reason):
    verdict, equal = compare.judge(curve, CURVE)
    assert not equal
    assert verdict.startswith(f"DIFFERENT: {reason}")
    assert ("TF32" in verdict) == ("TF32" in reason)
    assert compare.judge(curve, curve)[1] == math.isfinite(curve[0][0])


@pytest.mark.parametrize(
    ("epoch", "apart"),
    [(1, 5e-6), (2, 1e-4), (3, 3e-3), (5, 1e-3), (10, 1e-3), (30, 3e-4)],
)
def test_what_rounding_does_is_equal(epoch, apart):
    """Measured in 30 epochs on 1, 2 and 4 ranks: at most 2e-4 and one image apart.

    One process differed as much between one thread and two.
    """
    for sign in 1, -1:
        curve = changed(epoch, loss=1 + sign * apart, correct=2 * sign)
        lines, differ = compare.make_table({"01_cpu": CURVE, "04_ddp": curve})
        assert differ == []
        assert lines[1].endswith("/1000 equal")
        assert "/1000 equal (" in lines[2]


def test_a_line_that_a_kill_has_cut_does_not_count(tmp_path):
    path = tmp_path / "metrics.csv"
    first = "epoch,loss,correct,total,seconds\n1,1.5,761,1000,0.25\n"
    whole = first + "2,0.75,762,1000,0.25\n"
    for end in range(len(whole) + 1):
        path.write_text(whole[:end])
        epochs = (end >= len(first)) + (end == len(whole))
        assert compare.read(path) == CURVE[:epochs]


UNREADABLE = "03_dp: no readable epoch in {}/03_dp/metrics.csv. Run it again"
FAILED = "{}: its last run failed, was stopped or is still running"


@pytest.fixture
def compared(tmp_path, monkeypatch, capsys):
    """Return a function from {stage: curve} to compare's output and exit message.

    It keeps files that are already in a stage's folder. The picture is empty.
    """
    monkeypatch.setattr(compare, "draw", lambda *_: Figure())

    def get(curves, edit=lambda: None):
        for stage, curve in curves.items():
            lines = ["epoch,loss,correct,total,seconds"]
            for epoch, row in enumerate(curve, start=1):
                lines.append(f"{epoch},{row[0]},{row[1]},{row[2]},0.25")
            (tmp_path / stage).mkdir(exist_ok=True)
            text = "\n".join(lines) + "\n"
            (tmp_path / stage / "metrics.csv").write_text(text)
        edit()
        refused = ""
        try:
            compare.main(str(tmp_path))
        except SystemExit as end:
            refused = end.code
        return capsys.readouterr().out, refused

    return get


@pytest.mark.parametrize(
    ("stage", "old", "new", "reason"),
    [
        (None, "", "", ""),
        ("03_dp", ",1000,", ",999,", "DIFFERENT: not the same number of test images"),
        ("03_dp", "epoch,loss", "epoch,los", UNREADABLE),
        ("03_dp", "\n", " ", UNREADABLE),
        ("03_dp", ",1000,", ",0,", UNREADABLE),
        ("07_fsdp", "", "unfinished", FAILED),  # with an older run's metrics
        ("05_ddp_inference", "", "unfinished", FAILED),  # without metrics
    ],
)
def test_no_stage_is_left_out_in_silence(stage, old, new, reason, compared, tmp_path):
    def edit():
        (tmp_path / "05_ddp_inference").mkdir()  # an empty folder
        if reason == FAILED:
            (tmp_path / stage / new).touch()
        elif stage:
            path = tmp_path / stage / "metrics.csv"
            path.write_text(path.read_text().replace(old, new))

    said, refused = compared(dict.fromkeys(["01_cpu", "03_dp", "07_fsdp"], CURVE), edit)
    assert "not run yet: 02_single_gpu, " in said
    assert (tmp_path / "curves.png").exists()
    if stage:
        assert reason.format(stage if reason == FAILED else tmp_path) in said
        assert "one loss curve" not in said
        assert refused == f"not one curve: check {stage}"
    else:
        assert said.endswith("\n3 scripts, one loss curve\n")
        assert not refused


def test_a_run_s_own_flags_are_the_reason_of_its_curve(compared, tmp_path):
    """The flags are those that make stored when it started the run."""
    for stage, words in ("01_cpu", ""), ("07_fsdp", "--seed 7 --lr 0.10"):
        given = {"OUT": str(tmp_path / stage), "ARGS": words}
        (tmp_path / stage).mkdir()
        results.begin(make_plan(stage, given))
        (tmp_path / stage / "unfinished").unlink()
    said, refused = compared({"01_cpu": CURVE, "07_fsdp": changed(1, loss=2)})
    assert " DIFFERENT: run with seed=7\n" in said
    assert refused == "not one curve: check 07_fsdp"


def test_what_was_not_compared_is_said(compared):
    assert "one loss curve" not in compared({"01_cpu": CURVE})[0]
    said, _ = compared({"03_dp": CURVE[:2]})
    assert " equal in shared epochs; has 2\n" in said


def test_a_picture_has_losses_and_distances():
    pair = {"01_cpu": CURVE[:2], "03_dp": changed(2, loss=1.5)[:2]}
    figure = compare.draw(pair, ["03_dp"])
    drawn = [[list(line.get_ydata()) for line in axes.lines] for axes in figure.axes]
    losses, distances = drawn
    assert losses == [[1.5, 0.75], [1.5, 1.125]]
    right = figure.axes[1]
    low, top = right.get_ylim()
    assert distances == [[low], [0.5]]  # equal losses are drawn at the bottom
    assert [text.get_text() for text in right.texts] == ["bug", "rounding", "2,500 ×"]
    bands = [patch.get_data() for patch in right.patches]
    assert [list(band.values) for band in bands] == [[1e-5, 2e-4]] * 2
    assert [band.baseline for band in bands] == [top, low]
    assert figure.get_suptitle() == "Not one curve: check 03_dp"


def test_a_picture_of_one_curve_says_so():
    figure = compare.draw(dict.fromkeys(["13_gpt", "14_data_parallel"], CURVE[:2]), [])
    assert figure.get_suptitle() == "2 scripts, one loss curve"
    (exact,) = {tuple(one.get_data().values) for one in figure.axes[1].patches}
    assert exact == (compare.EXACT, compare.EXACT)
