"""Promise: the curve matches training written by hand."""

import pytest
import torch

import reference
from conftest import EVEN, PARTIAL, assert_near, rows, run, weights

CASES = [
    {},
    {"batch": 96, "size": PARTIAL},
    {"seed": 7, "hidden": 33, "lr": 0.05, "batch": 50},
    {"epochs": 1, "batch": 5000},  # one step, of all images
]


def assert_true(out, expected):
    """Assert that a run's files match the result of `reference.train`."""
    curve, arrays = expected
    assert_near([row[1:] for row in rows(out)], curve, 1e-12)
    tensors = [torch.from_numpy(array) for array in arrays]
    assert_near(list(weights(out).values()), tensors, 1e-12)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_stage_01_is_held_to_a_training_by_hand(case, data, tmp_path):
    options = {"epochs": 2, "batch": 64, **case}
    root = data(options.pop("size", EVEN))
    flags = ["--data", root, "--out", tmp_path]
    for name, value in options.items():
        flags += [{"batch": "--batch-size"}.get(name, f"--{name}"), value]
    result = run("01_cpu", *flags, float64=True)
    assert result.returncode == 0, result.stderr
    assert_true(tmp_path, reference.train(root, **options))


def test_padded_shards_are_the_padded_order(data, tmp_path):
    """1000 images on 3 ranks: each epoch uses its first two images twice."""
    root = data((1000, 997))
    flags = ["--data", root, "--out", tmp_path, "--epochs", 2]
    flags += ["--batch-size", 63, "--seed", 7]
    result = run("04_ddp", *flags, processes=3, float64=True)
    assert result.returncode == 0, result.stderr
    assert_true(tmp_path, reference.train(root, batch=63, seed=7, ranks=3))
