"""Promise: the three scripts of own_script/ train alike, by lines of the stages.

With GroupNorm, without dropout and augmentation, the three have one curve.
"""

import os

import pytest
import torch
from torch.utils.data import DataLoader

from conftest import edited
from tools.run import ranks
from tools.run.stages import script

SCRIPTS = {"before": None, "after_ddp": 2, "after_fsdp": 2}  # and their ranks
# 13 batches an epoch, and 31 images left over; uneven shards, in two batches each.
SIZE = 447, 401
EXACT = ["--norm", "group", "--dropout", 0, "--no-augment"]
KILLED = 7


def train(name, data, out, *flags, processes=None, path=None, **options):
    """Run one of the scripts, or `path`; return the result and what it saved."""
    words = [path or script(name), "--data", data(SIZE), "--out", out, "--epochs", 2]
    words += ["--workers", 1, *flags]
    processes = processes or SCRIPTS[name]
    result = ranks.run(words, processes, **options)
    path = out / "state.pth"
    return result, torch.load(path, weights_only=True) if path.exists() else None


def trained(*words, **options):
    """Return what a run saved that ended well."""
    result, state = train(*words, **options)
    assert result.returncode == 0, result.stderr
    assert state["epoch"] == len(state["curve"]) == 2
    return state


def off(ours, theirs):
    """Return how far two states are apart, in losses and in weights."""
    distances = []
    for loss, other in zip(ours["curve"], theirs["curve"], strict=True):
        distances.append(abs(loss - other))
    assert list(ours["model"]) == list(theirs["model"])
    for name, tensor in ours["model"].items():
        assert type(tensor) is torch.Tensor
        distances.append((tensor - theirs["model"][name]).abs().max().item())
    assert len(distances) == 2 + len(theirs["model"]) > 10
    return max(distances)


@pytest.fixture(scope="module")
def reference(data, tmp_path_factory):
    """A function from flags to what before.py saves, in float64."""
    done = {}

    def get(*flags):
        if flags not in done:
            out = tmp_path_factory.mktemp("before")
            done[flags] = trained("before", data, out, *flags, float64=True)
        return done[flags]

    return get


@pytest.mark.parametrize("name", ["after_ddp", "after_fsdp"])
def test_two_ranks_have_the_curve_of_one_process(name, reference, data, tmp_path):
    state = trained(name, data, tmp_path, *EXACT, float64=True)
    assert off(state, reference(*EXACT)) < 1e-12


@pytest.mark.parametrize("name", ["after_ddp", "after_fsdp"])
def test_one_rank_does_what_one_process_does(name, reference, data, tmp_path):
    """With everything on: what moves the curve later is that there are more ranks."""
    state = trained(name, data, tmp_path, processes=1, float64=True)
    assert off(state, reference()) < 1e-12


CLIP = "            nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
BACKWARD = "            (loss / accumulate).backward()\n"
STEP = "            scheduler.step()"
FORGOTTEN = {
    "the scheduler on rank 1": [
        (STEP, f"            if dist.get_rank() == 0:\n    {STEP}")
    ],
    "to clip after the exchange": [(CLIP, ""), (BACKWARD, BACKWARD + CLIP)],
}


@pytest.mark.parametrize("line", FORGOTTEN)
def test_the_comparison_shows_what_was_forgotten(line, reference, data, tmp_path):
    path = edited("after_ddp", tmp_path / "script", *FORGOTTEN[line])
    state = trained("after_ddp", data, tmp_path, *EXACT, float64=True, path=path)
    assert off(state, reference(*EXACT)) > 1e-3


def end_after_an_epoch(rank):
    """Have rank 0 end when it has saved its first state."""
    replace = os.replace

    def replace_and_end(*paths):
        replace(*paths)
        os._exit(KILLED)

    os.replace = replace_and_end


@pytest.mark.parametrize("name", ["after_ddp", "after_fsdp"])
def test_a_killed_run_goes_on_where_it_was(name, data, tmp_path):
    """With everything on, and the scheduler's state: 2e-8 is a rounding in float32."""
    expected = trained(name, data, tmp_path / "whole")
    out = tmp_path / "killed"
    result, state = train(name, data, out, prepare=(end_after_an_epoch,))
    assert result.returncode == KILLED and state["epoch"] == 1
    resumed = trained(name, data, out, "--resume")
    assert off(resumed, expected) == 0
    assert resumed["scheduler"]["last_epoch"] == expected["scheduler"]["last_epoch"]


def record(rank, folder):
    """Write down the variances that evaluate, and the seeds of the loaders' workers."""
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


@pytest.mark.parametrize("name", ["after_ddp", "after_fsdp"])
def test_each_rank_is_random_by_itself_and_evaluates_what_is_saved(
    name, data, tmp_path
):
    """BatchNorm's statistics too, which differ between ranks after training."""
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


def added(a, b):
    """Return the lines of script `b` that script `a` does not have, without indents."""
    old = script(a).read_text().splitlines()
    new = script(b).read_text().splitlines()
    known = {line.strip() for line in old}
    return [line.strip() for line in new if line.strip() not in known]


@pytest.mark.parametrize(
    ("a", "b", "stages", "counts"),
    [
        ("before", "after_ddp", ["05_ddp_inference", "11_resume"], (40, 15)),
        ("after_ddp", "after_fsdp", ["07_fsdp"], (19, 9)),
    ],
)
def test_added_lines_are_the_stages(a, b, stages, counts):
    """All but a few, which the page explains: `counts` is (all, those)."""
    known = set()
    for stage in stages:
        known |= {line.strip() for line in script(stage).read_text().splitlines()}
    lines = added(a, b)
    others = [line for line in lines if line not in known]
    assert (len(lines), len(others)) == counts, "\n".join(others)
