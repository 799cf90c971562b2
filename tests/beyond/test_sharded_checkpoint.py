"""Promise: stage 12's sharded checkpoints are complete and fit any number of ranks."""

import functools
import os
import signal

import pytest
from torch.distributed.checkpoint import FileSystemReader, FileSystemWriter

from conftest import ADAMW, MOMENTUM, assert_close, rows, run_edited, slow
from tools.run.sample import cut

STAGE = "12_sharded_checkpoint"
SIZE = 1020, 997  # 510 images per rank on two, 340 on three; the last batch has 30
EPOCHS = 3
OPTIMIZERS = {"momentum": (MOMENTUM, 0.05), "adamw": (ADAMW, 0.001)}


def train(
    data, out, epochs, *flags, stage=STAGE, name="momentum", changes=(), **options
):
    """Run a stage in float64 with another optimizer and changes; return the result."""
    optimizer, rate = OPTIMIZERS[name]
    words = ["--epochs", epochs, "--lr", rate, "--batch-size", 66, *flags]
    options["float64"] = True
    return run_edited(stage, data, out, [optimizer, *changes], *words, **options)


@pytest.fixture(scope="module")
def reference(data, tmp_path_factory):
    """Return a function that trains stage 01 with an optimizer, into a new folder."""

    @functools.cache
    def get(name):
        out = tmp_path_factory.mktemp(name)
        train(data(SIZE), out, EPOCHS, stage="01_cpu", name=name)
        return out

    return get


def whole(out):
    """Return the epochs that have a complete checkpoint."""
    found = [int(path.parent.name) for path in out.glob("checkpoints/*/.metadata")]
    return sorted(found)


@pytest.mark.parametrize(("name", "processes"), [("adamw", 3), slow("momentum", 1)])
def test_saved_on_two_ranks_and_resumed(name, processes, reference, data, tmp_path):
    train(data(SIZE), tmp_path, 1, name=name)
    options = {"name": name, "processes": processes}
    printed = train(data(SIZE), tmp_path, EPOCHS, "--resume", **options).stdout
    assert f"{processes} processes" in printed
    assert printed.count("epoch ") == EPOCHS - 1
    assert whole(tmp_path) == [1, 2, 3]
    assert_close(tmp_path, reference(name))


@pytest.mark.slow
def test_the_learning_rate_is_that_of_the_checkpoint(data, tmp_path):
    """It isn't a tensor, so only `set_optimizer_state_dict` restores it."""
    report = "report(args, epoch, loss, correct, total, start)\n"
    decay = '        optimizer.param_groups[0]["lr"] *= 0.5\n'
    changed = {"changes": [(f"    {report}", f"    {report}{decay}")]}
    whole = tmp_path / "whole"
    train(data(SIZE), whole, EPOCHS, **changed)
    train(data(SIZE), tmp_path / "parts", 1, **changed)
    train(data(SIZE), tmp_path / "parts", EPOCHS, "--resume", **changed)
    assert_close(tmp_path / "parts", whole)


def test_each_rank_writes_its_part_alone(data, tmp_path):
    train(data(SIZE), tmp_path, 1)
    folder = tmp_path / "checkpoints" / "1"
    files = sorted(path.name for path in folder.iterdir())
    assert files == [".metadata", "__0_0.distcp", "__1_0.distcp"]
    entries = FileSystemReader(folder).read_metadata().state_dict_metadata.values()
    tensors = [entry for entry in entries if hasattr(entry, "chunks")]
    assert len(tensors) == 8  # weights and momentum
    for tensor in tensors:
        first, second = tensor.chunks
        assert first.sizes == second.sizes
        assert 2 * first.sizes[0] == tensor.size[0]


def die_while_writing(rank, method, epoch, victim):
    """Kill rank `victim` when its writer calls `method` for an epoch's checkpoint."""
    original = getattr(FileSystemWriter, method)

    def dying(self, *args, **kwargs):
        if rank == victim and self.path.name == str(epoch):
            os.kill(os.getpid(), signal.SIGKILL)
        return original(self, *args, **kwargs)

    setattr(FileSystemWriter, method, dying)


# `finish` writes .metadata, on rank 0.
@pytest.mark.parametrize(("method", "victim"), [slow("write_data", 1), ("finish", 0)])
def test_killed_while_it_is_written(method, victim, reference, data, tmp_path):
    prepare = die_while_writing, method, 2, victim
    result = train(data(SIZE), tmp_path, EPOCHS, prepare=prepare, fails=True)
    assert result.statuses[victim] == -signal.SIGKILL  # the other may crash too
    assert (tmp_path / "checkpoints" / "2").exists()
    assert whole(tmp_path) == [1]
    printed = train(data(SIZE), tmp_path, EPOCHS, "--resume").stdout
    assert printed.count("epoch ") == EPOCHS - 1
    assert_close(tmp_path, reference("momentum"))


def fail_to_write(rank, epoch):
    """Simulate a full disk when an epoch's checkpoint is written."""
    write = FileSystemWriter.write_data

    def write_or_fail(self, *args, **kwargs):
        if self.path.name == str(epoch):
            raise OSError("No space left on device")
        return write(self, *args, **kwargs)

    FileSystemWriter.write_data = write_or_fail


@pytest.mark.parametrize("epoch", [slow(1), 2])
def test_a_checkpoint_that_could_not_be_written_ends_the_run(epoch, data, tmp_path):
    """It is written in the background, so the error is raised only by `result()`."""
    result = train(data(SIZE), tmp_path, 2, prepare=(fail_to_write, epoch), fails=True)
    assert result.returncode != 0
    assert "No space left on device" in result.stderr
    assert whole(tmp_path) == list(range(1, epoch))
    assert not (tmp_path / "model.pth").exists()


@pytest.mark.slow
def test_a_new_run_leaves_no_checkpoint_of_an_earlier_one(reference, data, tmp_path):
    """Otherwise a later --resume would continue the other run."""
    train(data(SIZE), tmp_path, 2, "--seed", 7)
    train(data(SIZE), tmp_path, 1)
    assert whole(tmp_path) == [1]
    train(data(SIZE), tmp_path, EPOCHS, "--resume")
    assert_close(tmp_path, reference("momentum"))


@pytest.mark.slow
def test_ten_epochs_are_more_than_nine(data, tmp_path):
    """The last checkpoint is found by number, not by the order of names."""
    small = cut(tmp_path / "data", 66, 10)
    train(small, tmp_path, 10)
    printed = train(small, tmp_path, 11, "--resume").stdout
    assert printed.count("epoch ") == 1
    assert len(rows(tmp_path)) == 11
