"""Promise: a mistake exits with one line that says what to do, or a clear error."""

import re

import pytest
import torch

from conftest import EVEN, alone, run, weights
from tools.run.stages import CPU_PROCESSES, MNIST, script

SHARED_BY = {  # simulated number of ranks, and the units that share a batch of 64
    "04_ddp": (3, "processes"),
    "05_ddp_inference": (3, "processes"),
    "07_fsdp": (3, "processes"),
    "10_hybrid": (6, "pairs"),
    "11_resume": (3, "processes"),
    "12_sharded_checkpoint": (3, "processes"),
}


def refused(result, line):
    """Assert that a run exited with `line` and did nothing else."""
    assert result.returncode != 0
    assert result.stderr == f"{line}\n"
    assert result.stdout == ""


@pytest.mark.parametrize("stage", MNIST.values())
def test_data_without_mnist(stage, tmp_path):
    result = run(stage, "--data", tmp_path, "--out", tmp_path / "out", processes=1)
    refused(result, f"no MNIST in {tmp_path}: run 'make data', or name --data")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("stage", CPU_PROCESSES)
def test_without_torchrun(stage):
    result = run(stage, processes=0)
    count = CPU_PROCESSES[stage]
    refused(result, f"start it with torchrun --nproc-per-node={count} {script(stage)}")


@pytest.mark.parametrize(("stage", "count"), [("09_pipeline", 2), ("10_hybrid", 4)])
def test_a_number_of_ranks_that_does_not_fit(stage, count, data):
    result = run(stage, "--data", data(EVEN), processes=0, prepare=(alone, 3))
    refused(result, f"start it with torchrun --nproc-per-node={count} {script(stage)}")


@pytest.mark.parametrize("stage", SHARED_BY)
def test_a_batch_that_cannot_be_shared(stage, data, tmp_path):
    """Refused before the ranks join, so that no rank waits in vain."""
    world_size, sharers = SHARED_BY[stage]
    flags = ["--data", data(EVEN), "--out", tmp_path / "out"]
    prepare = alone, world_size
    result = run(stage, *flags, processes=0, prepare=prepare, timeout=60)
    refused(result, f"--batch-size must be a multiple of 3 ({sharers})")
    assert not (tmp_path / "out").exists()


def test_foreign_checkpoints(trained, data, tmp_path):
    """The error says why a checkpoint doesn't fit; nothing is evaluated."""
    good = weights(trained("01_cpu"))
    cases = {
        "Unexpected key.*module.layers.1.weight": {
            f"module.{name}": value for name, value in good.items()
        },
        "Weights only load failed": torch.nn.Linear(3, 4),
    }
    path = tmp_path / "model.pth"
    flags = ["--data", data(EVEN), "--out", tmp_path / "out", "--checkpoint", path]
    for message, content in cases.items():
        torch.save(content, path)
        result = run("05_ddp_inference", *flags, processes=1)
        assert re.search(f"(?s){message}", result.stderr)
        assert result.stdout == ""
