"""Promise: a run that was killed goes on after its last epoch, and nothing shows."""

import random
import shutil
import time

import pytest
import torch

from conftest import (
    EVEN,
    MOMENTUM,
    command,
    edited,
    off,
    ranks_of,
    rows,
    run,
    slow,
    start,
    start_make,
    wait_for,
    weights,
)
from tools.run import launch
from tools.run.stages import DISTRIBUTED, STAGES

EPOCHS = 3
FLAGS = ["--lr", 0.01]


def assert_identical(out, reference):
    assert rows(out) == rows(reference)
    ours, theirs = weights(out), weights(reference)
    assert len(ours) == 4
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def train(stage, data, out, epochs, *flags, **options):
    flags = ["--data", data, "--out", out, "--epochs", epochs, *flags]
    result = run(stage, *flags, **options)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def uninterrupted(data, tmp_path_factory):
    """A function that trains with momentum and without a stop; returns the folder.

    Stages that test_curve.py shows to be equal share a run.
    """
    done = {}

    def get(stage):
        first = "04_ddp" if stage in DISTRIBUTED else "01_cpu"
        if first not in done:
            out = done[first] = tmp_path_factory.mktemp(first)
            path = edited(first, out, MOMENTUM)
            train(first, data(EVEN), out, EPOCHS, *FLAGS, path=path)
        return done[first]

    return get


@pytest.mark.parametrize("stage", STAGES)
def test_resumed_equals_uninterrupted_bit_for_bit(stage, uninterrupted, data, tmp_path):
    path = edited(stage, tmp_path / "script", MOMENTUM)
    train(stage, data(EVEN), tmp_path, 1, *FLAGS, path=path)
    printed = train(stage, data(EVEN), tmp_path, EPOCHS, *FLAGS, "--resume", path=path)
    assert "epoch 1/" not in printed
    assert printed.count("epoch ") == EPOCHS - 1
    assert_identical(tmp_path, uninterrupted(stage))
    state = torch.load(tmp_path / "state.pth", weights_only=True)
    assert len(state["optimizer"]["state"]) == 4


@pytest.mark.parametrize(("float64", "apart"), [(False, 1e-6), (True, 1e-12)])
def test_on_four_ranks_it_is_equal_to_rounding(data, tmp_path, float64, apart):
    """DDP makes its buckets anew after the first step of a run, and more than two ranks
    then add in another order: https://github.com/pytorch/pytorch/issues/44798
    """
    path = edited("05_ddp_inference", tmp_path, MOMENTUM)
    options = {"path": path, "processes": 4, "float64": float64}
    words = "05_ddp_inference", data(EVEN)
    train(*words, tmp_path / "whole", EPOCHS, *FLAGS, **options)
    train(*words, tmp_path / "parts", 1, *FLAGS, **options)
    train(*words, tmp_path / "parts", EPOCHS, *FLAGS, "--resume", **options)
    assert off(tmp_path / "parts", tmp_path / "whole")[0] <= apart


@pytest.mark.parametrize("owner", [0, 1])
def test_ranks_go_on_from_where_rank_0_is(owner, uninterrupted, data, tmp_path):
    """As on two nodes without a shared folder: one of them alone has the state."""
    folder = (
        "    args.out.mkdir",
        "    args.out = args.out / str(rank)\n    args.out.mkdir",
    )
    path = edited("04_ddp", tmp_path / "script", MOMENTUM, folder)
    options = {"path": path}
    train("04_ddp", data(EVEN), tmp_path, 1, *FLAGS, **options)
    assert not list((tmp_path / "1").iterdir())  # rank 0 alone writes
    if owner == 1:
        for file in (tmp_path / "0").iterdir():
            shutil.move(file, tmp_path / "1")
    printed = train(
        "04_ddp", data(EVEN), tmp_path, EPOCHS, *FLAGS, "--resume", **options
    )
    assert printed.count("epoch ") == (EPOCHS if owner == 1 else EPOCHS - 1)
    assert_identical(tmp_path / "0", uninterrupted("04_ddp"))


@slow
def test_killed_at_any_moment(trained, data, tmp_path):
    """Killed twice with no warning, then five epochs more."""
    stage, chance = "04_ddp", random.Random(0)
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
    train(stage, data(EVEN), tmp_path, epochs, "--resume")
    assert_identical(tmp_path, trained(stage, epochs=epochs))


def test_in_another_stage_and_on_other_ranks_in_float64(trained, data, tmp_path):
    steps = [("01_cpu", None), ("04_ddp", 4), ("06_model_parallel", None)]
    steps += [("05_ddp_inference", 2), ("03_dp", None)]
    for epoch, (stage, processes) in enumerate(steps, start=1):
        options = {"float64": True, "processes": processes}
        train(stage, data(EVEN), tmp_path, epoch, "--resume", **options)
    reference = trained("01_cpu", float64=True, epochs=len(steps))
    assert len(rows(tmp_path)) == 5
    distance, counts = off(tmp_path, reference)
    assert (distance <= 1e-12, counts) == (True, 0)


@slow
def test_restarts_survive_a_killed_rank(trained, tmp_path):
    stage, out, epochs = "05_ddp_inference", tmp_path / "out", 20
    process = start_make(stage, out, "RESTARTS=3", f"EPOCHS={epochs}")
    wait_for(out / "state.pth")
    time.sleep(1)
    first, _ = ranks_of(stage, out)
    assert len(rows(out)) < epochs
    first.kill()
    stdout, stderr = process.communicate(timeout=90)
    assert process.returncode == 0, stderr
    assert stdout.count(f"{stage}: 2 processes") == 2  # it did start again
    assert_identical(out, trained("04_ddp", None, epochs=epochs))


def test_restarts_do_not_go_on_with_an_earlier_run(data, tmp_path, monkeypatch):
    settings = {"DATA": str(data(EVEN)), "OUT": str(tmp_path), "GPUS": "cpu"}
    with pytest.raises(SystemExit, match="^01_cpu is not started by torchrun"):
        launch.plan("01_cpu", {**settings, "RESTARTS": "3"})
    started = []

    class Started:
        """Notes what would be started, and whether it would find a state."""

        def __init__(self, words, **_):
            started.append((words, (tmp_path / "state.pth").exists()))

        def wait(self):
            return 0

    monkeypatch.setattr(launch.subprocess, "Popen", Started)
    for arguments, there in ("", False), ("--resume", True):
        (tmp_path / "state.pth").write_text("of an earlier run")
        launch.run("04_ddp", {**settings, "RESTARTS": "3", "ARGS": arguments})
        words, found = started.pop()
        assert "--max-restarts=3" in words
        assert words.count("--resume") == 1
        assert found == there
    assert (tmp_path / "state.before.pth").read_text() == "of an earlier run"
