"""Promise: the stages beyond train as stage 01 does, each by its own mechanism."""

import json
import re
from pathlib import Path

import pytest
import torch
from torch.distributed.tensor import DTensor
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode

from conftest import OTHER, PARTIAL, ROOT, assert_close, rows, run
from tools.run.sample import cut, write_part
from tools.run.stages import BEYOND, CPU_PROCESSES

FSDP, TENSOR, PIPELINE, HYBRID, RESUME, SHARDED = BEYOND.values()
# 130 and 10 are not multiples of 4, and 1012 images leave 52 for the last batch.
UNEVEN = ["--batch-size", 96, "--epochs", 2, *OTHER[PARTIAL]]
ONE_EPOCH = ["--batch-size", 48, "--epochs", 1]
FILES = {
    RESUME: {"state.pth"},
    SHARDED: {"checkpoints"},
}  # besides the curve and weights
# PyTorch warns of stage 10's two meshes while it gathers the weights, on each rank.
GATHERS = re.compile(r".*2 sequential all_gather operations.*\n(?:  warnings?\..*\n)?")


def train(stage, data, out, *flags, **options):
    """Run a stage and return what it printed; it must say nothing on stderr."""
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
    """More test images than fit in a batch, their number, and what stage 01 does.

    Two ranks have 1000 and 999, or 1001 and 1000. Evaluated in the fewest batches, by
    either way of counting them, one rank has a batch more than the other.
    """
    count = request.param
    root = cut(tmp_path_factory.mktemp("many"), 96, 1)
    source = ROOT / "data/sample/MNIST/raw"
    images = (source / "train-images-idx3-ubyte").read_bytes()[16:]
    labels = (source / "train-labels-idx1-ubyte").read_bytes()[8:]
    write_part(root, "t10k", images[: count * 784], labels[:count])
    train("01_cpu", root, root / "01", *ONE_EPOCH, float64=True)
    return root, count, root / "01"


def note_batches(rank, folder):
    """Write down how many images each call of the network in an evaluation has."""
    file = open(Path(folder) / f"batches{rank}", "w", buffering=1)  # noqa: SIM115

    def called(module, args):
        if type(module).__name__.endswith("Net") and not module.training:
            print(len(args[0]), file=file)

    register_module_forward_pre_hook(called)


@pytest.mark.parametrize("stage", [FSDP, HYBRID, SHARDED])
def test_evaluation_is_exact_where_shards_differ(stage, many, tmp_path):
    """A forward pass is a collective: ranks would wait for one with fewer batches."""
    root, count, reference = many
    options = {"float64": True, "prepare": (note_batches, tmp_path)}
    train(stage, root, tmp_path / "out", *ONE_EPOCH, **options)
    assert rows(tmp_path / "out")[-1][3] == count
    assert_close(tmp_path / "out", reference)
    images = 0
    for file in tmp_path.glob("batches*"):
        sizes = [int(line) for line in file.read_text().split()]
        assert len(sizes) == 2
        assert max(sizes) <= 1000
        images += sum(sizes)
    assert images == count * CPU_PROCESSES[stage] // 2  # in stage 10, both of a pair


class Messages(TorchDispatchMode):
    """Notes each call that moves numbers between ranks, and how many go in."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # it comes again, for the part of this rank
        name = func._schema.name
        if "c10d" in name and "wait" not in name and "wrap" not in name:
            given = (
                args[1] if "allgather" in name or "reduce_scatter" in name else args[0]
            )
            given = given[0] if isinstance(given, list) else given
            self.seen.append([name.split("::")[1].strip("_"), given.numel()])
        return func(*args, **(kwargs or {}))


def spy(rank, folder):
    """Write down what this rank holds, and what it moves from one step to the next."""
    plain = torch.optim.SGD.step
    messages = Messages()

    def step(self, *args, **kwargs):
        result = plain(self, *args, **kwargs)
        self.steps = getattr(self, "steps", 0) + 1
        if self.steps == 1:
            messages.__enter__()
        if self.steps == 2:
            messages.__exit__(None, None, None)
            (group,) = self.param_groups
            held = 0
            for weight in group["params"]:
                own = weight.to_local() if isinstance(weight, DTensor) else weight
                held += 0 if own.is_meta else own.nbytes
            found = {"bytes": held, "moved": messages.seen}
            (Path(folder) / f"rank{rank}").write_text(json.dumps(found))
        return result

    torch.optim.SGD.step = step


def seen(stage, data, folder):
    """Return what `spy` has written, a list with an entry of each rank."""
    flags = ["--epochs", 1, "--lr", 0.1]
    train(stage, data, folder / "out", *flags, prepare=(spy, folder))
    files = [folder / f"rank{rank}" for rank in range(CPU_PROCESSES[stage])]
    return [json.loads(file.read_text()) for file in files]


def count(found):
    """Return how often each message is sent in the step: {(name, numbers): times}."""
    moved = [tuple(message) for message in found["moved"]]
    return {message: moved.count(message) for message in moved}


def test_fsdp_keeps_a_half_and_borrows_layer_by_layer(data, tmp_path):
    first = 784 * 128 + 128
    last = 128 * 10 + 10
    for found in seen(FSDP, data((256, 64)), tmp_path):
        assert found["bytes"] == 203_540 == (first + last) * 4 // 2
        assert count(found) == {
            ("allgather_base", first // 2): 2,  # for the way there, and the way back
            ("allgather_base", last // 2): 2,
            ("reduce_scatter_base", first): 1,
            ("reduce_scatter_base", last): 1,
        }


def test_tensor_parallel_moves_640_activations(data, tmp_path):
    for found in seen(TENSOR, data((256, 64)), tmp_path):
        assert found["bytes"] == 203_560
        assert count(found) == {("all_reduce", 640): 1}


def test_pipeline_moves_micro_batches_there_and_back(data, tmp_path):
    first, last = seen(PIPELINE, data((256, 64)), tmp_path)
    assert (first["bytes"], last["bytes"]) == (401_920, 5_160)
    there = [["send", 16 * 128]] * 4
    back = [["recv", 16 * 128]] * 4
    assert first["moved"] == there + back  # all are in flight before the first is back
    assert last["moved"] == [["recv", 16 * 128]] * 4 + [["send", 16 * 128]] * 4


def test_hybrid_does_both(data, tmp_path):
    first = 784 * 64 + 64
    last = 64 * 10 + 10
    for found in seen(HYBRID, data((256, 64)), tmp_path):
        assert found["bytes"] == 101_780
        assert count(found) == {
            ("allgather_base", first // 2): 2,
            ("allgather_base", last // 2): 2,
            ("reduce_scatter_base", first): 1,
            ("reduce_scatter_base", last): 1,
            ("all_reduce", 320): 1,  # of 32 images
        }
