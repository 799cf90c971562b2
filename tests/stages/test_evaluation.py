"""Promise: stage 05 counts every test image once, on any number of ranks."""

import re

import pytest
from torch.utils.data import DistributedSampler, Subset

from conftest import EVEN, rows, run, weights
from tools.run.data import tensors
from tools.run.stages import load

SIZE = EVEN  # 997 test images, a prime


@pytest.mark.parametrize("processes", [1, 2, 3, 4])
def test_every_image_counts_once(trained, data, processes):
    out = trained("01_cpu")
    flags = ["--checkpoint", out / "model.pth", "--data", data(SIZE)]
    result = run("05_ddp_inference", *flags, processes=processes)
    assert result.returncode == 0, result.stderr
    found = re.fullmatch(r".*model\.pth  test (\d+)/(\d+)\n", result.stdout)
    assert [int(found[1]), int(found[2])] == rows(out)[-1][2:]
    assert int(found[2]) == 997


@pytest.mark.parametrize("processes", [2, 3, 4])
def test_distributed_sampler_counts_some_images_twice(trained, data, processes):
    """Why stage 05 does without it: it pads until every rank has as many images."""
    stage = load("01_cpu")
    test = tensors(data(SIZE), train=False)
    model = stage.Net(hidden=128)
    model.load_state_dict(weights(trained("01_cpu")))
    total = 0
    for rank in range(processes):
        padded = DistributedSampler(test, processes, rank, shuffle=False)
        total += stage.evaluate(model, Subset(test, list(padded)))[1]
    assert total == -(-997 // processes) * processes
    assert total > 997
