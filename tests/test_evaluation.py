"""Promise: stage 05 counts every test image once, on any number of ranks."""

import re

import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler

from conftest import EVEN, rows, run, weights
from tools.stages import load

SIZE = EVEN  # 997 test images, a prime


def evaluate_on(processes, checkpoint, data):
    """Return (correct, total) as stage 05 prints it for a checkpoint."""
    flags = ["--checkpoint", checkpoint, "--data", data(SIZE)]
    result = run("05_ddp_inference", *flags, processes=processes)
    assert result.returncode == 0, result.stderr
    found = re.findall(r"model\.pth  test (\d+)/(\d+)\n", result.stdout)
    assert len(found) == 1
    return tuple(map(int, found[0]))


@pytest.mark.parametrize("processes", [1, 2, 3, 4])
def test_every_image_counts_once(trained, data, processes):
    out = trained("01_cpu")
    assert evaluate_on(processes, out / "model.pth", data) == tuple(rows(out)[-1][2:])
    assert rows(out)[-1][3] == 997


def test_a_checkpoint_saved_from_the_wrapper(trained, data, tmp_path):
    out = trained("01_cpu")
    wrapped = {f"module.{name}": value for name, value in weights(out).items()}
    torch.save(wrapped, tmp_path / "model.pth")
    assert evaluate_on(2, tmp_path / "model.pth", data) == tuple(rows(out)[-1][2:])


@pytest.mark.parametrize("processes", [2, 3, 4])
def test_distributed_sampler_counts_some_images_twice(trained, data, processes):
    """Why stage 05 does without it: it pads until every rank has as many images."""
    stage = load("01_cpu")
    dataset = stage.MNIST(data(SIZE), train=False)
    model = stage.Net(hidden=128)
    model.load_state_dict(weights(trained("01_cpu")))
    counts = []
    for rank in range(processes):
        padded = DistributedSampler(dataset, processes, rank, shuffle=False)
        loader = DataLoader(dataset, 1000, sampler=padded, collate_fn=tuple)
        counts.append(stage.evaluate(model, loader))
    total = sum(total for _, total in counts)
    assert total == -(-997 // processes) * processes
    assert total > 997
