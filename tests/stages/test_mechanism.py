"""Promise: each stage's mechanism is at work, and only where it belongs."""

import itertools
from multiprocessing.util import Finalize
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.nn.modules.module import register_module_forward_pre_hook

from conftest import DISTRIBUTED, EVEN
from onecurve import api
from tools.run.stages import STAGES, script

WRAPPERS = {
    "03_dp": "DataParallel",
    "04_ddp": "DistributedDataParallel",
    "05_ddp_inference": "DistributedDataParallel",
}
KINDS = {"Net", *WRAPPERS.values()}


def spy(rank, folder):
    """Log the networks and wrappers that this process calls, and how it ends."""
    events = open(Path(folder) / f"rank{rank}", "w", buffering=1)  # noqa: SIM115

    def called(module, args):
        name = type(module).__name__
        if name in KINDS:
            mode = "training" if module.training else "evaluation"
            assert torch.is_grad_enabled() == module.training, f"gradients in {mode}"
            print(name, mode, len(args[0]), sep=",", file=events)

    def ended():
        print("group there" if dist.is_initialized() else "no group", file=events)

    register_module_forward_pre_hook(called)
    Finalize(None, ended, exitpriority=10)


def modes(events):
    """Return [(network mode, consecutive images)] from a rank's events."""
    calls = [event.split(",") for event in events if event.startswith("Net,")]
    found = []
    for mode, group in itertools.groupby(calls, key=lambda call: call[1]):
        found.append((mode, sum(int(images) for *_, images in group)))
    return found


@pytest.mark.parametrize("stage", STAGES)
def test_what_works_when(stage, data, tmp_path):
    """Check modes, that wrappers never evaluate, and that no process group is left."""
    words = [script(stage), "--data", data(EVEN), "--out", tmp_path / "out"]
    count = 2 if stage in DISTRIBUTED else 1
    processes = count if stage in DISTRIBUTED else None
    prepare = spy, tmp_path
    result = api.run([*words, "--epochs", 2], processes, prepare=prepare)
    assert result.returncode == 0, result.stderr
    train, test = EVEN
    for rank in range(count):
        events = (tmp_path / f"rank{rank}").read_text().splitlines()
        assert events[-1] == "no group"
        expected = [("training", train // count), ("evaluation", test)] * 2
        if stage == "05_ddp_inference":
            shard = (test + 1 - rank) // 2
            expected = [("training", train // 2), ("evaluation", shard)] * 2
        elif stage == "04_ddp" and rank > 0:  # only rank 0 evaluates
            expected = [("training", train)]
        assert modes(events) == expected
        calls = [event.split(",") for event in events if "Parallel" in event]
        wrapper = {WRAPPERS[stage]} if stage in WRAPPERS else set()
        assert {name for name, *_ in calls} == wrapper
        assert {mode for _, mode, _ in calls} <= {"training"}
