"""Promise: every stage uses the right GPUs, however many there are.

The GPUs are fake (tools.lab.fake_cuda): they compute correctly and refuse what CUDA and
NCCL refuse. So these tests fail if any line that moves a tensor or model is missing.
"""

import pytest
import torch

from conftest import (
    DISTRIBUTED,
    MOMENTUM,
    assert_close,
    edited,
    run,
    use_fake_gpus,
    used_gpus,
)
from tools.run.stages import CPU_PROCESSES, STAGES

SIZE = 56, 21
BATCH = 40  # leaves a partial last batch
OLD_DRIVER = "2, by NVML alone"  # CUDA can't use them


def have_an_old_driver(rank):
    """Make PyTorch count GPUs that it can't use."""
    torch.cuda.device_count = lambda: 2


def train(stage, out, data, gpus, *flags, processes=2, path=None):
    """Run a stage in float64 on fake GPUs and return the result.

    Ranks that share a GPU use gloo, as with `make`.
    """
    out.mkdir(exist_ok=True)
    words = ["--data", data(SIZE), "--out", out, "--batch-size", BATCH, *flags]
    prepare = None
    if gpus == OLD_DRIVER:
        prepare = (have_an_old_driver,)
    elif gpus > 0:
        prepare = use_fake_gpus, out, gpus
        if stage in CPU_PROCESSES and gpus < processes:
            words += ["--backend", "gloo"]
    options = {"float64": True, "prepare": prepare, "path": path}
    return run(stage, *words, processes=processes, **options)


def expected(stage, gpus, processes):
    """Return the header after the stage name, and each rank's devices."""
    device = "cuda" if gpus and stage != "01_cpu" else "cpu"
    all_of_them = [f"cuda:{index}" for index in range(gpus)] or ["cpu"]
    if stage in CPU_PROCESSES:
        backend = "nccl" if gpus >= processes else "gloo"
        header = f"{processes} processes on {device} ({backend})"
        used = [all_of_them[rank % len(all_of_them)] for rank in range(processes)]
        return header, [{device} for device in used]
    if stage == "03_dp":
        return f"1 process on {device} ({gpus} GPUs)", [set(all_of_them)]
    if stage == "06_model_parallel":
        second = "cuda:1" if gpus > 1 else device
        return f"1 process on {device} and {second}", [set(all_of_them[:2])]
    return f"1 process on {device}", [{"cpu" if device == "cpu" else "cuda:0"}]


@pytest.fixture
def hold(data, trained, tmp_path):
    """Return a function that compares a stage on GPUs with stage 01 on the CPU."""

    def held(stage, gpus, processes=2):
        result = train(stage, tmp_path, data, gpus, "--epochs", 2, processes=processes)
        assert result.returncode == 0, result.stderr
        usable = 0 if gpus == OLD_DRIVER else gpus
        header, devices = expected(stage, usable, processes)
        assert result.stdout.startswith(f"{stage}: {header}, {BATCH} images a step")
        if usable:
            assert used_gpus(tmp_path) == devices
        assert_close(tmp_path, trained("01_cpu", SIZE, BATCH, float64=True))

    return held


@pytest.mark.parametrize("gpus", [0, 1, 2, 8, OLD_DRIVER])
@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_is_where_it_should_be(hold, stage, gpus):
    hold(stage, gpus)


@pytest.mark.parametrize("stage", DISTRIBUTED)
def test_more_ranks_than_gpus_share_them(hold, stage):
    hold(stage, 2, processes=4)


@pytest.mark.parametrize("stage", ["09_pipeline", "11_resume"])
def test_stages_beyond(hold, stage):
    """Other stages use streams or DTensors, which the fake GPUs lack."""
    hold(stage, 2)


@pytest.mark.parametrize(
    ("old", "new", "gpus", "said"),
    [
        ("torch.cuda.set_device(", "(", 2, "is bound to device cuda:1 but"),
        ("(args.backend)", '("nccl")', 1, "Multiple Ranks are using the same GPU"),
        ("(totals)", "(totals.cpu())", 2, "No backend type associated with"),
    ],
)
def test_what_nccl_refuses(old, new, gpus, said, data, tmp_path):
    path = edited("04_ddp", tmp_path, (old, new))
    result = train("04_ddp", tmp_path / "out", data, gpus, path=path)
    assert said in result.stderr


def test_a_run_goes_from_gpus_to_the_cpu_and_back(data, tmp_path):
    path = edited("11_resume", tmp_path, MOMENTUM)
    reference = edited("01_cpu", tmp_path, MOMENTUM)
    train("01_cpu", tmp_path / "01", data, 0, "--epochs", 3, path=reference)
    out = tmp_path / "out"
    for epochs, gpus in (1, 2), (2, 0), (3, 2):
        flags = "--epochs", epochs, "--resume"
        result = train("11_resume", out, data, gpus, *flags, path=path)
        assert result.returncode == 0, result.stderr
    assert_close(out, tmp_path / "01")
