"""Promise: a run that was killed goes on after its last epoch, and nothing shows."""

import random
import time

import pytest
import torch
from test_failing import ranks_of, start, start_make, wait_for

from conftest import EVEN, ROOT, command, rows, run, weights
from tools import launch, ranks
from tools.stages import DISTRIBUTED, STAGES

EPOCHS = 4


def uninterrupted(trained, stage, *size, epochs):
    """Train without a stop: stages that test_curve.py shows to be equal share a run."""
    first = "04_ddp" if stage in DISTRIBUTED else "01_cpu"
    return trained(first, *size, epochs=epochs)


def assert_identical(out, reference):
    assert rows(out) == rows(reference)
    ours, theirs = weights(out), weights(reference)
    assert len(ours) == 4
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def train(stage, data, out, epochs, **options):
    flags = ["--data", data, "--out", out, "--epochs", epochs, "--resume"]
    result = run(stage, *flags, **options)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize("stage", STAGES)
def test_resumed_equals_uninterrupted_bit_for_bit(stage, trained, data, tmp_path):
    reference = uninterrupted(trained, stage, epochs=EPOCHS)
    train(stage, data(EVEN), tmp_path, 1)
    printed = train(stage, data(EVEN), tmp_path, EPOCHS)
    assert "epoch 1/" not in printed
    assert printed.count("epoch ") == EPOCHS - 1
    assert_identical(tmp_path, reference)


@pytest.mark.parametrize("attempt", range(3))
def test_killed_at_any_moment(attempt, trained, data, tmp_path):
    """Killed twice with no warning, then five epochs more."""
    chance = random.Random(attempt)
    stage = ["01_cpu", "04_ddp", "06_model_parallel"][attempt]
    flags = ["--data", data(EVEN), "--out", tmp_path, "--epochs", 100_000, "--resume"]
    for _ in range(2):
        before = (tmp_path / "state.pth").exists()
        process = start(command(stage, *flags))
        wait_for(tmp_path / "state.pth")
        time.sleep(chance.uniform(0, 0.5) + 3 * before)
        launch.end(process.pid)
        process.communicate(timeout=10)
    epochs = len(rows(tmp_path)) + 5
    assert epochs > 5
    train(stage, data(EVEN), tmp_path, epochs)
    assert_identical(tmp_path, uninterrupted(trained, stage, epochs=epochs))


def test_in_another_stage_and_on_other_ranks_in_float64(trained, data, tmp_path):
    steps = [("01_cpu", None), ("04_ddp", 4), ("06_model_parallel", None)]
    steps += [("05_ddp_inference", 2), ("03_dp", None)]
    for epoch, (stage, processes) in enumerate(steps, start=1):
        options = {"float64": True, "processes": processes}
        train(stage, data(EVEN), tmp_path, epoch, **options)
    reference = trained("01_cpu", float64=True, epochs=len(steps))
    assert len(rows(tmp_path)) == 5
    for ours, theirs in zip(rows(tmp_path), rows(reference), strict=True):
        assert ours[1] == pytest.approx(theirs[1], abs=1e-12)
        assert ours[2:] == theirs[2:]
    ours, theirs = weights(tmp_path), weights(reference)
    assert all((ours[k] - theirs[k]).abs().max() <= 1e-12 for k in theirs)


def test_the_state_of_another_optimizer_is_kept(data, tmp_path):
    """With momentum, which a learner may add."""
    script = tmp_path / "01_cpu" / "mnist.py"
    script.parent.mkdir()
    source = (ROOT / "01_cpu" / "mnist.py").read_text()
    assert source.count("lr=args.lr)") == 1
    script.write_text(source.replace("lr=args.lr)", "lr=args.lr, momentum=0.9)"))
    for out, epochs in ("a", [3]), ("b", [1, 2, 3]):
        for number in epochs:
            flags = ["--data", data(EVEN), "--out", tmp_path / out, "--lr", "0.01"]
            words = [script, *flags, "--epochs", number, "--resume"]
            assert ranks.run(words).returncode == 0
    assert_identical(tmp_path / "b", tmp_path / "a")
    _, moments, _ = torch.load(tmp_path / "a" / "state.pth")
    assert len(moments["state"]) == 4


@pytest.mark.parametrize("stage", DISTRIBUTED)
def test_restarts_survive_a_killed_rank(stage, trained, tmp_path):
    out, epochs = tmp_path / "out", 30
    reference = uninterrupted(trained, stage, None, epochs=epochs)
    process = start_make(stage, out, "RESTARTS=3", f"EPOCHS={epochs}")
    wait_for(out / "state.pth")
    time.sleep(1)
    first, _ = ranks_of(stage, out)
    assert len(rows(out)) < epochs
    first.kill()
    stdout, stderr = process.communicate(timeout=90)
    assert process.returncode == 0, stderr
    assert stdout.count(f"{stage}: 2 processes") == 2  # it did start again
    assert_identical(out, reference)


def test_restarts_do_not_go_on_with_an_earlier_run(data, tmp_path):
    settings = {"DATA": str(data(EVEN)), "OUT": str(tmp_path), "GPUS": "cpu"}
    (tmp_path / "state.pth").write_text("of an earlier run")
    _, words = launch.plan("04_ddp", {**settings, "RESTARTS": "3"})
    assert "--max-restarts=3" in words
    assert words[-1] == "--resume"
    launch.set_aside(words)
    assert not (tmp_path / "state.pth").exists()
    assert (tmp_path / "state.before.pth").read_text() == "of an earlier run"
    with pytest.raises(SystemExit, match="^01_cpu is not started by torchrun"):
        launch.plan("01_cpu", {**settings, "RESTARTS": "3"})
