"""Promise: the stages in beyond/ train as stage 01 does.

bench/test_held.py checks each rank's memory and traffic.
"""

import re

import pytest

from conftest import (
    ADAMW,
    OTHER,
    PARTIAL,
    ROOT,
    assert_close,
    assert_near,
    rows,
    run,
    run_edited,
    slow,
    weights,
)
from tools.run.sample import cut, write_part
from tools.run.stages import BEYOND

FSDP, TENSOR, PIPELINE, HYBRID, RESUME, SHARDED = BEYOND.values()
# 130 and 10 aren't multiples of 4, and 1012 images leave 52 for the last batch.
UNEVEN = ["--batch-size", 96, "--epochs", 2, *OTHER[PARTIAL]]
ONE_EPOCH = ["--batch-size", 48, "--epochs", 1]
FILES = {
    RESUME: {"state.pth"},
    SHARDED: {"checkpoints"},
}  # in addition to the curve and weights
# On each rank, PyTorch warns about stage 10's two meshes when it gathers weights.
GATHERS = re.compile(r".*2 sequential all_gather operations.*\n(?:  warnings?\..*\n)?")
LAYERS = "        self.layers = nn.Sequential("
# A norm before the network, where every rank has the whole input.
NORM = (
    (LAYERS, "        self.norm = nn.BatchNorm1d(28)\n" + LAYERS),
    ("images / 255", "self.norm(images / 255)"),
)


def train(stage, data, out, *flags, **options):
    """Run a stage and return its output; assert that stderr is empty."""
    words = ["--data", data, "--out", out, *flags]
    result = run(stage, *words, timeout=60, **options)
    errors = result.stderr
    if stage == HYBRID:
        errors = GATHERS.sub("", errors)
    assert (result.returncode, errors) == (0, "")
    return result.stdout


@pytest.mark.parametrize("stage", [FSDP, TENSOR, HYBRID, RESUME, SHARDED])
def test_four_ranks_in_float64(stage, trained, data, tmp_path):
    options = {"processes": 4, "float64": True}
    train(stage, data(PARTIAL), tmp_path, *UNEVEN, **options)
    assert_close(tmp_path, trained("01_cpu", PARTIAL, 96, float64=True))


@pytest.mark.parametrize("count", [1, 5])
def test_any_number_of_micro_batches(count, trained, data, tmp_path):
    flags = [*UNEVEN, "--micro-batches", count]
    train(PIPELINE, data(PARTIAL), tmp_path, *flags, float64=True)
    assert_close(tmp_path, trained("01_cpu", PARTIAL, 96, float64=True))


@pytest.mark.parametrize("stage", BEYOND.values())
def test_stage_05_evaluates_what_a_stage_has_saved(stage, trained, data, tmp_path):
    out = trained(stage, PARTIAL, 96)
    written = {path.name for path in out.iterdir()}
    kept = {"metrics.csv", "model.pth", "stdout", "stderr"}
    assert written == kept | FILES.get(stage, set())
    flags = ["--checkpoint", out / "model.pth", *OTHER[PARTIAL]]
    correct, total = rows(out)[-1][2:]
    for reader in "05_ddp_inference", RESUME:
        printed = train(reader, data(PARTIAL), tmp_path, *flags)
        assert printed == f"{out / 'model.pth'}  test {correct}/{total}\n"


@pytest.fixture(scope="module", params=[1999, 2001])
def many(request, tmp_path_factory):
    """Return data with several test batches, its test size and stage 01's output.

    Two ranks get 1000 and 999 images, or 1001 and 1000. `n // 1000 + 1` in the first
    case, and rounding up in the second, would give one rank an extra batch.
    """
    count = request.param
    root = cut(tmp_path_factory.mktemp("many"), 96, 1)
    source = ROOT / "data/sample/MNIST/raw"
    images = (source / "train-images-idx3-ubyte").read_bytes()[16:]
    labels = (source / "train-labels-idx1-ubyte").read_bytes()[8:]
    write_part(root, "t10k", images[: count * 784], labels[:count])
    train("01_cpu", root, root / "01", *ONE_EPOCH, float64=True)
    return root, count, root / "01"


@pytest.mark.parametrize("stage", [FSDP, slow(HYBRID), slow(SHARDED)])
def test_evaluation_is_exact_where_shards_differ(stage, many, tmp_path):
    """A forward pass is a collective, so unequal numbers of batches would hang."""
    root, count, reference = many
    train(stage, root, tmp_path, *ONE_EPOCH, float64=True)
    assert rows(tmp_path)[-1][3] == count
    assert_close(tmp_path, reference)


def train_changed(stages, data, out, changes, *flags):
    """Train changed scripts in float64, each in its own folder; return the folders."""
    words = ["--epochs", 2, "--batch-size", 96, *flags]
    for stage in stages:
        folder = out / stage
        run_edited(stage, data(PARTIAL), folder, changes, *words, float64=True)
    return [out / stage for stage in stages]


@pytest.mark.parametrize("stage", [FSDP, slow(TENSOR), slow(PIPELINE), slow(HYBRID)])
def test_adamw(stage, data, tmp_path):
    """The tests of stages 11 and 12 cover AdamW there."""
    stages = stage, "01_cpu"
    assert_close(*train_changed(stages, data, tmp_path, [ADAMW], "--lr", 0.001))


@pytest.mark.parametrize(
    ("stage", "like"),
    [
        (FSDP, "05_ddp_inference"),
        slow(HYBRID, "05_ddp_inference"),
        slow(TENSOR, "01_cpu"),  # both ranks see the whole batch
    ],
)
def test_buffers_are_saved(stage, like, data, tmp_path):
    """As in stage 05, each rank or pair has its own buffers and rank 0's are saved."""
    ours, theirs = train_changed([stage, like], data, tmp_path, NORM)
    assert "norm.num_batches_tracked" in weights(ours)
    assert_near(weights(ours), weights(theirs), 1e-12)
