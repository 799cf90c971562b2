"""Promise: a killed run of stage 11 continues after its last epoch."""

import functools
import os
import shutil
import signal

import pytest
import torch

from conftest import (
    ADAMW,
    EVEN,
    MOMENTUM,
    assert_close,
    assert_identical,
    rows,
    run_edited,
    slow,
)

STAGE = "11_resume"
OPTIMIZERS = {"momentum": (MOMENTUM, 0.01), "adamw": (ADAMW, 0.0002)}
EPOCHS = 3
PLAIN = "momentum", 2, False  # optimizer, ranks, float64
CASES = [(*PLAIN, 0), slow("adamw", 4, True, 1e-12)]  # and the tolerance


def train(data, out, epochs, *flags, name="momentum", changes=(), **options):
    """Run the stage with another optimizer and changes; return the result."""
    optimizer, rate = OPTIMIZERS[name]
    words = ["--epochs", epochs, "--lr", rate, *flags]
    return run_edited(STAGE, data, out, [optimizer, *changes], *words, **options)


@pytest.fixture(scope="module")
def uninterrupted(data, tmp_path_factory):
    """Return a function that trains without interruption and returns the folder."""

    @functools.cache
    def get(name, processes, float64):
        out = tmp_path_factory.mktemp("uninterrupted")
        options = {"name": name, "processes": processes, "float64": float64}
        train(data(EVEN), out, EPOCHS, **options)
        return out

    return get


@pytest.mark.parametrize(("name", "processes", "float64", "apart"), CASES)
def test_resumed_equals_uninterrupted(
    name, processes, float64, apart, uninterrupted, data, tmp_path
):
    """Bitwise equal on two ranks. On four, DDP rebuilds its bucket after a run's first
    step and then adds in another order: github.com/pytorch/pytorch/issues/44798
    """
    options = {"name": name, "processes": processes, "float64": float64}
    train(data(EVEN), tmp_path, 1, **options)
    printed = train(data(EVEN), tmp_path, EPOCHS, "--resume", **options).stdout
    assert "epoch 1/" not in printed
    assert printed.count("epoch ") == EPOCHS - 1
    reference = uninterrupted(name, processes, float64)
    assert_close(tmp_path, reference, apart)
    state = torch.load(tmp_path / "state.pth", weights_only=True)
    assert state["epoch"] == EPOCHS
    assert len(state["optimizer"]["state"]) == 4


def test_without_resume_it_begins_anew(uninterrupted, data, tmp_path):
    train(data(EVEN), tmp_path, EPOCHS + 1)
    train(data(EVEN), tmp_path, EPOCHS)
    assert_identical(tmp_path, uninterrupted(*PLAIN))


@pytest.mark.parametrize("owner", [0, slow(1)])
def test_ranks_go_on_from_where_rank_0_is(owner, uninterrupted, data, tmp_path):
    """As on two nodes without a shared folder, where only one has the state."""
    folder = "    args.out.mkdir"
    own = "    args.out = args.out / str(rank)\n    args.out.mkdir"
    changes = [(folder, own)]
    train(data(EVEN), tmp_path, 1, changes=changes)
    assert not list((tmp_path / "1").iterdir())  # only rank 0 writes
    if owner == 1:
        for file in (tmp_path / "0").iterdir():
            shutil.move(file, tmp_path / "1")
    printed = train(data(EVEN), tmp_path, EPOCHS, "--resume", changes=changes).stdout
    assert printed.count("epoch ") == (EPOCHS if owner == 1 else EPOCHS - 1)
    assert_identical(tmp_path / "0", uninterrupted(*PLAIN))


def die_while_writing(rank, name, count):
    """Kill rank 0 halfway through writing the `count`-th file called `name`."""
    save = torch.save
    seen = []

    def half(content, path):
        seen.append(path.stem == name)
        save(content, path)
        if sum(seen) == count and path.stem == name:
            os.truncate(path, path.stat().st_size // 2)
            os.kill(os.getpid(), signal.SIGKILL)

    torch.save = half


@pytest.mark.parametrize(("name", "count"), [("state", 2), slow("model", 1)])
def test_killed_while_a_file_is_written(name, count, uninterrupted, data, tmp_path):
    prepare = die_while_writing, name, count
    result = train(data(EVEN), tmp_path, EPOCHS, prepare=prepare, fails=True)
    assert result.statuses[0] == -signal.SIGKILL  # the other may crash too
    assert not (tmp_path / "model.pth").exists()
    state = torch.load(tmp_path / "state.pth", weights_only=True)
    assert state["epoch"] == (1 if name == "state" else EPOCHS)
    printed = train(data(EVEN), tmp_path, EPOCHS, "--resume").stdout
    assert printed.count("epoch ") == EPOCHS - state["epoch"]
    assert_identical(tmp_path, uninterrupted(*PLAIN))


def test_killed_while_the_curve_is_written(uninterrupted, data, tmp_path):
    """metrics.csv has the epoch but the state doesn't; it must not appear twice."""
    line = "            state = {"
    death = "            assert epoch < 2\n"
    changes = [(line, death + line)]
    result = train(data(EVEN), tmp_path, EPOCHS, changes=changes, fails=True)
    assert "    assert epoch < 2\n" in result.stderr
    assert len(rows(tmp_path)) == 2
    train(data(EVEN), tmp_path, EPOCHS, "--resume")
    assert_identical(tmp_path, uninterrupted(*PLAIN))
