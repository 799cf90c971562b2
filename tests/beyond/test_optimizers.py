"""Promise: with AdamW, or with buffers, the stages beyond train alike.

Stages 11 and 12 do with other optimizers what their own tests say.
"""

import functools

import pytest

from conftest import (
    ADAMW,
    PARTIAL,
    assert_close,
    assert_near,
    edited,
    run_edited,
    slow,
    weights,
)
from tools.run.stages import load_file

RATE = "--lr", 0.001  # for AdamW
LAYERS = "        self.layers = nn.Sequential("
# A norm in front of the network: there, its input is whole on every rank.
NORM = (
    (LAYERS, "        self.norm = nn.BatchNorm1d(28)\n" + LAYERS),
    ("images / 255", "self.norm(images / 255)"),
)
BUFFERS = {"norm.running_mean", "norm.running_var", "norm.num_batches_tracked"}


def train(stage, data, out, changes, *flags):
    """Train a changed script in float64."""
    words = ["--epochs", 2, "--batch-size", 96, *flags]
    run_edited(stage, data, out, changes, *words, float64=True)


@pytest.fixture(scope="module")
def reference(data, tmp_path_factory):
    """A function that trains a changed script of stage 01 or 05; returns the folder."""

    @functools.cache
    def get(stage, changes, *flags):
        out = tmp_path_factory.mktemp(stage)
        train(stage, data(PARTIAL), out, changes, *flags)
        return out

    return get


@pytest.mark.parametrize(
    "stage",
    ["07_fsdp", slow("08_tensor_parallel"), slow("09_pipeline"), slow("10_hybrid")],
)
def test_adamw(stage, reference, data, tmp_path):
    train(stage, data(PARTIAL), tmp_path, (ADAMW,), *RATE)
    assert_close(tmp_path, reference("01_cpu", (ADAMW,), *RATE))


@pytest.mark.parametrize("stage", ["07_fsdp", slow("10_hybrid")])
def test_buffers_are_saved(stage, reference, data, tmp_path):
    """Each rank, or pair, has its own, as in stage 05: those of rank 0 are saved."""
    train(stage, data(PARTIAL), tmp_path, NORM)
    found = weights(tmp_path)
    assert set(found) > BUFFERS
    steps = 2 * -(-PARTIAL[0] // 96)
    assert found["norm.num_batches_tracked"] == steps
    assert_near(found, weights(reference("05_ddp_inference", NORM)), 1e-12)
    path = edited(stage, tmp_path / "script", *NORM)
    model = load_file("changed", path).Net(hidden=128)
    model.load_state_dict(found, strict=True)


def test_buffers_under_tensor_parallelism(reference, data, tmp_path):
    """Both ranks see the whole batch: here, the norm is that of one process."""
    train("08_tensor_parallel", data(PARTIAL), tmp_path, NORM)
    assert_close(tmp_path, reference("01_cpu", NORM))
