"""Promise: the three scripts in own_script/ train alike, with lines from the stages.

With GroupNorm and without dropout and augmentation, they have one curve.
"""

import functools
import os

import pytest
import torch
from torch.utils.data import DataLoader
from torchvision import datasets

from conftest import assert_near, slow
from onecurve import api
from tools.run.stages import load, script

SCRIPTS = {"before": None, "after_ddp": 2, "after_fsdp": 2}  # script -> ranks
# 13 batches per epoch leave 31 images; test shards are uneven, with two batches each.
SIZE = 447, 401
SEED = 5
EXACT = ["--norm", "group", "--dropout", 0, "--no-augment", "--seed", SEED]
KILLED = 7


def train(name, data, out, *flags, **options):
    """Run one of the scripts; return the result and the saved state, if any."""
    words = [script(name), "--data", data(SIZE), "--out", out, "--epochs", 2]
    words += ["--workers", 1, *flags]
    result = api.run(words, SCRIPTS[name], **options)
    path = out / "state.pth"
    return result, torch.load(path, weights_only=True) if path.exists() else None


def trained(*words, **options):
    """Return a successful run's saved state, including its output."""
    result, state = train(*words, **options)
    assert result.returncode == 0, result.stderr
    assert state["epoch"] == len(state["curve"]) == 2
    return {**state, "printed": result.stdout}


def assert_alike(ours, theirs, apart):
    """Assert that two states' losses and weights differ by at most `apart`."""
    for part in "curve", "model":
        assert_near(ours[part], theirs[part], apart)


def note_steps(rank, folder):
    """Have rank 0 save the weights and unclipped gradients of each step."""
    clip = torch.nn.utils.clip_grad_norm_
    steps = []

    def whole(tensor):
        tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
        return tensor.detach().clone()

    def note_and_clip(parameters, norm):
        parameters = list(parameters)
        steps.append([(whole(one), whole(one.grad)) for one in parameters])
        if rank == 0:
            torch.save(steps, folder / "steps")
        return clip(parameters, norm)

    torch.nn.utils.clip_grad_norm_ = note_and_clip


@pytest.fixture(scope="module")
def exact(data, tmp_path_factory):
    """Return a function from a script to its float64 state and its noted steps."""

    @functools.cache
    def get(name):
        out = tmp_path_factory.mktemp(name)
        options = {"float64": True, "prepare": (note_steps, out)}
        state = trained(name, data, out, *EXACT, **options)
        return state, torch.load(out / "steps")

    return get


@pytest.mark.parametrize("name", ["after_ddp", slow("after_fsdp")])
def test_two_ranks_have_the_curve_of_one_process(name, exact):
    ours = exact(name)[0]
    right = exact("before")[0]
    assert_alike(ours, right, 1e-12)
    assert ours["printed"] == right["printed"]
    assert right["printed"].count(f"/{SIZE[1]}\n") == 2


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_step_is_that_of_one_whole_batch(name, exact, data):
    """This includes an epoch's last step, which has one batch instead of two."""
    _, steps = exact(name)
    mnist = datasets.MNIST(data(SIZE), train=True)
    order = torch.randperm(SIZE[0], generator=torch.Generator().manual_seed(SEED + 1))
    batches = order[: 13 * 32].split(64)
    assert len(batches[-1]) == 32
    model = load("before").Net("group", dropout=0).double()
    for batch, step in zip(batches, steps[: len(steps) // 2], strict=True):
        for own, (weights, _) in zip(model.parameters(), step, strict=True):
            own.data = weights
            own.grad = None
        logits = model(mnist.data[batch, None].double())
        torch.nn.functional.cross_entropy(logits, mnist.targets[batch]).backward()
        for own, (_, gradient) in zip(model.parameters(), step, strict=True):
            assert (own.grad - gradient).abs().max() < 1e-12


def end_after_an_epoch(rank):
    """Have rank 0 exit after it saves its first state."""
    replace = os.replace

    def replace_and_end(*paths):
        replace(*paths)
        os._exit(KILLED)

    os.replace = replace_and_end


@pytest.mark.parametrize("name", [slow("before"), "after_ddp", slow("after_fsdp")])
def test_a_killed_run_goes_on_where_it_was(name, data, tmp_path):
    """With every feature on, it is bitwise equal, including the scheduler's state."""
    expected = trained(name, data, tmp_path / "whole")
    out = tmp_path / "killed"
    result, state = train(name, data, out, prepare=(end_after_an_epoch,))
    assert result.returncode == KILLED and state["epoch"] == 1
    resumed = trained(name, data, out, "--resume")
    assert_alike(resumed, expected, 0)
    assert resumed["scheduler"]["last_epoch"] == expected["scheduler"]["last_epoch"]


def record(rank, folder):
    """Log the variances used in evaluation and the seeds of the loaders' workers."""
    forward = torch.nn.BatchNorm2d.forward
    begin = DataLoader.__iter__

    def write_and_forward(norm, images):
        if not norm.training:
            with open(folder / f"statistics{rank}", "a") as file:
                print(norm.running_var.sum().item(), file=file)
        return forward(norm, images)

    def begin_and_write(loader):
        iterator = begin(loader)
        with open(folder / f"seeds{rank}", "a") as file:
            print(iterator._base_seed, file=file)
        return iterator

    torch.nn.BatchNorm2d.forward = write_and_forward
    DataLoader.__iter__ = begin_and_write


@pytest.mark.parametrize("name", ["after_ddp", slow("after_fsdp")])
def test_each_rank_is_random_by_itself_and_evaluates_what_is_saved(
    name, data, tmp_path
):
    """This includes BatchNorm statistics, which differ between ranks after training."""
    state = trained(name, data, tmp_path, prepare=(record, tmp_path))
    saved = set()
    for key, tensor in state["model"].items():
        if key.endswith("running_var"):
            saved.add(str(tensor.sum().item()))
    assert len(saved) == 4
    seeds = []
    for rank in range(2):
        used = set((tmp_path / f"statistics{rank}").read_text().split())
        assert len(used) == 8  # of two epochs
        assert saved < used
        seeds += (tmp_path / f"seeds{rank}").read_text().split()
    assert len(seeds) == 8  # of two epochs, training and evaluation
    assert len(set(seeds)) == 8
