"""Promise: a mistake ends in one clear line on stderr and a non-zero exit status."""

import pytest
import torch

from conftest import EVEN, PARTIAL, call, command, run
from tools.stages import DISTRIBUTED, STAGES, load, script


def refused(result, line, lines=1):
    """Assert that a run ended with `line` on stderr, after which torchrun may report."""
    assert result.returncode != 0
    assert "epoch" not in result.stdout
    printed = result.stderr.splitlines()
    ours = [text for text in printed if text.startswith(line.split(":")[0] + ":")]
    assert len(ours) == lines, result.stderr
    assert printed[0] == ours[0]
    assert line in ours[0]
    assert 'mnist.py", line' not in result.stderr  # no traceback of the stage


@pytest.mark.parametrize("stage", DISTRIBUTED)
def test_without_torchrun(stage, data):
    result = run(stage, "--data", data(EVEN), processes=0)
    start = f"{stage}: start it by torchrun --nproc-per-node=2 {script(stage)}"
    refused(result, start)


@pytest.mark.parametrize("stage", STAGES)
def test_fewer_than_one_epoch(stage, data, tmp_path):
    flags = ["--epochs", 0, "--data", data(EVEN), "--out", tmp_path]
    refused(run(stage, *flags), f"{stage}: --epochs, --batch-size: at least 1")


@pytest.mark.parametrize("stage", ["01_cpu", "04_ddp"])
def test_a_flag_that_is_no_number(stage):
    result = run(stage, "--epochs", "many")
    refused(result, f"{stage}: argument --epochs: invalid int value: 'many'")


@pytest.mark.parametrize("stage", DISTRIBUTED)
def test_batch_that_cannot_be_shared(stage, data, tmp_path):
    flags = ["--data", data(PARTIAL), "--out", tmp_path]
    result = run(stage, *flags, processes=3)
    line = f"{stage}: --batch-size must be a multiple of 3 processes, 63 or 66"
    refused(result, line)


@pytest.mark.parametrize("stage", ["01_cpu", "04_ddp"])
def test_data_without_mnist(stage, tmp_path):
    result = call(command(stage, "--data", tmp_path, "--out", tmp_path / "out"))
    refused(result, f"{stage}: no MNIST in {tmp_path}: run 'make data'")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("stage", ["01_cpu", "04_ddp"])
def test_output_that_cannot_be_written(stage, data, tmp_path):
    (tmp_path / "file").write_text("in the way")
    flags = ["--data", data(EVEN), "--out", tmp_path / "file" / "out"]
    result = run(stage, *flags)
    refused(result, f"{stage}: [Errno 20] Not a directory: '{tmp_path}/file/out'")
    assert (tmp_path / "file").read_text() == "in the way"


def foreign_checkpoints(folder):
    """Make files that are no checkpoint of the network; returns their paths."""
    (folder / "empty").write_bytes(b"")
    (folder / "text").write_text("loss 0.1\n")
    torch.save(torch.nn.Linear(3, 4).state_dict(), folder / "other network")
    torch.save([1, 2], folder / "list")
    torch.save(torch.nn.Linear(3, 4), folder / "pickled module")
    return list(folder.iterdir())


def test_missing_checkpoint(data, tmp_path):
    flags = ["--data", data(EVEN), "--checkpoint", tmp_path / "none.pth"]
    result = run("05_ddp_inference", *flags)
    refused(result, f"05_ddp_inference: no weights of this Net in {tmp_path}/none.pth")


def test_foreign_checkpoints(data, tmp_path, monkeypatch):
    """In this process, as the only rank: the script turns OSError into its one line."""
    stage = load("05_ddp_inference")
    environment = {"RANK": "0", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    for name, value in {**environment, "WORLD_SIZE": "1"}.items():
        monkeypatch.setenv(name, value)
    start = stage.dist.init_process_group
    monkeypatch.setattr(
        stage.dist,
        "init_process_group",
        lambda backend: start(
            backend, store=stage.dist.HashStore(), rank=0, world_size=1
        ),
    )
    paths = foreign_checkpoints(tmp_path)
    for path in paths:
        flags = ["--data", data(EVEN), "--out", tmp_path / "out", "--checkpoint", path]
        monkeypatch.setattr("sys.argv", ["mnist.py", *map(str, flags)])
        with pytest.raises(OSError, match=f"^no weights of this Net in {path}$"):
            stage.main(stage.parse_args())
        stage.dist.destroy_process_group()
    assert len(paths) == 5
