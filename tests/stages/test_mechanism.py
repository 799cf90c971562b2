"""Promise: each stage's mechanism is really at work, and only where it belongs."""

import itertools
from multiprocessing.util import Finalize
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.nn.modules.module import register_module_forward_pre_hook

from conftest import DISTRIBUTED, EVEN, ROOT
from tools.run import ranks
from tools.run.stages import STAGES, script

WRAPPERS = {
    "03_dp": "DataParallel",
    "04_ddp": "DistributedDataParallel",
    "05_ddp_inference": "DistributedDataParallel",
}
KINDS = {"Net", *WRAPPERS.values()}
MODES = {  # of a network: is it in training mode, and are gradients on?
    (True, True): "training",
    (False, False): "evaluation",
    (True, False): "training without gradients",
    (False, True): "evaluation with gradients",
}


def spy(rank, folder):
    """Write down which networks and wrappers this process calls, and how it ends."""
    events = open(Path(folder) / f"rank{rank}", "w", buffering=1)  # noqa: SIM115

    def called(module, args):
        if type(module).__name__ in KINDS:
            mode = MODES[module.training, torch.is_grad_enabled()]
            name = type(module).__name__
            print(name, mode, len(args[0]), sep=",", file=events)

    def ended():
        print("group there" if dist.is_initialized() else "no group", file=events)

    register_module_forward_pre_hook(called)
    Finalize(None, ended, exitpriority=10)


@pytest.fixture(scope="module")
def seen(data, tmp_path_factory):
    """A function that runs a stage for two epochs; returns the events of each rank."""
    done = {}

    def get(stage):
        if stage not in done:
            folder = tmp_path_factory.mktemp(stage)
            words = [script(stage), "--data", data(EVEN), "--out", folder / "out"]
            count = 2 if stage in DISTRIBUTED else None
            result = ranks.run([*words, "--epochs", 2], count, prepare=(spy, folder))
            assert result.returncode == 0, result.stderr
            done[stage] = [
                (folder / f"rank{rank}").read_text().splitlines()
                for rank in range(count or 1)
            ]
        return done[stage]

    return get


@pytest.mark.parametrize("stage", STAGES)
def test_training_is_on_in_training_and_off_in_evaluation(seen, stage):
    train, test = EVEN
    for rank, events in enumerate(seen(stage)):
        calls = [event.split(",") for event in events if event.startswith("Net,")]
        share = train // len(seen(stage))
        expected = [("training", share), ("evaluation", test)] * 2
        if stage == "05_ddp_inference":
            expected = [("training", share), ("evaluation", (test + 1 - rank) // 2)] * 2
        elif stage == "04_ddp" and rank > 0:  # rank 0 alone evaluates
            expected = [("training", 2 * share)]
        found = [
            (mode, sum(int(images) for *_, images in group))
            for mode, group in itertools.groupby(calls, key=lambda call: call[1])
        ]
        assert found == expected


@pytest.mark.parametrize("stage", STAGES)
def test_the_wrapper_trains_and_never_evaluates(seen, stage):
    for events in seen(stage):
        calls = [event.split(",") for event in events if "Parallel" in event]
        expected = {WRAPPERS[stage]} if stage in WRAPPERS else set()
        assert {name for name, *_ in calls} == expected
        assert {mode for _, mode, _ in calls} <= {"training"}


@pytest.mark.parametrize("stage", STAGES)
def test_no_process_group_is_left(seen, stage):
    assert {events[-1] for events in seen(stage)} == {"no group"}


@pytest.mark.parametrize("stage", DISTRIBUTED)
def test_the_process_group_is_destroyed_at_the_end_alone(stage):
    """Not in a `finally`: there it can hang when another rank has died."""
    end = "    main(parse_args())\n    dist.destroy_process_group()\n"
    text = (ROOT / stage / "mnist.py").read_text()
    assert text.endswith(end)
    assert text.count("destroy_process_group") == 1
