"""Promise: the curve on GPUs matches the CPU's; other tests don't see any GPU.

Tests that need more GPUs than the machine has are skipped and counted.
stages/test_devices.py tests device placement without GPUs.
"""

import functools
import json
import os
import shutil
import sys

import pytest
import torch

from conftest import (
    DISTRIBUTED,
    ENV,
    MOMENTUM,
    ROOT,
    assert_close,
    assert_near,
    call,
    command,
    edited,
    rows,
    run,
)
from cuda_rules import TEXTS, asked_of, words_of_the_kernel
from tools.run.stages import (
    BEYOND,
    BY_NAME,
    CPU_PROCESSES,
    STAGES,
    TRANSFORMER,
    too_old,
)

SEEING = {**ENV, "CUDA_VISIBLE_DEVICES": os.environ["GPUS_GIVEN"]}
if SEEING["CUDA_VISIBLE_DEVICES"] == "all":
    SEEING.pop("CUDA_VISIBLE_DEVICES")
ON_GPUS = [stage for stage in STAGES if stage != "01_cpu"]
APART = 1e-10  # in float64; sums run in another order
CASES = [((256, 101), 64), ((257, 101), 64)]  # images, batch; 257 leaves one image
CUT = [stage for stage in TRANSFORMER.values() if stage in CPU_PROCESSES]
SECOND_CURVE = ["--steps", 5, "--every", 3]
SHARED_BY_NCCL = 2, 30  # lets ranks share a GPU if asked; 2.28 doesn't
SHARE = {"NCCL_MULTI_RANK_GPU_ENABLE": "1"}
# PyTorch warns which device it assumes for a rank, and when a thread starts with one.
QUIET = {"PYTHONWARNINGS": "ignore:barrier(),ignore:Attempting to run cuBLAS"}


@functools.cache
def count_gpus():
    """Return the number of usable GPUs that the tests were given."""
    if not shutil.which("nvidia-smi"):
        return 0
    asked = "torch.cuda.device_count() if torch.cuda.is_available() else 0"
    words = [sys.executable, "-c", f"import torch; print({asked})"]
    return int(call(words, env=SEEING).stdout or 0)


def first(gpus):
    """Return CUDA_VISIBLE_DEVICES for the first GPUs."""
    listed = SEEING.get("CUDA_VISIBLE_DEVICES", "0,1,2,3,4,5,6,7").split(",")
    return ",".join(listed[:gpus])


def needs(gpus):
    """Skip a test that needs more GPUs than there are."""
    if count_gpus() < gpus:
        pytest.skip(f"needs {gpus} GPU{'s' * (gpus > 1)}, found {count_gpus()}")


def needs_nccl_to_share():
    """Skip a test whose ranks share a GPU through NCCL if that is impossible."""
    needs(1)
    asked = "import torch; print(*torch.cuda.nccl.version())"
    version = call([sys.executable, "-c", asked], env=SEEING).stdout.split()
    if tuple(map(int, version)) < SHARED_BY_NCCL:
        pytest.skip(f"needs NCCL 2.30, found {'.'.join(version)}")


def train(stage, out, gpus, *flags, processes=None, dtype="float64", path=None):
    """Run a stage on the first GPUs; return those on which each rank used memory."""
    out.mkdir(exist_ok=True)
    ranks = (processes or gpus or 2) if stage in CPU_PROCESSES else 1
    by = "tests/gpus/measured.py", out, dtype
    words = command(stage, "--out", out, *flags, processes=ranks, path=path, by=by)
    env = {**SEEING, **SHARE, **QUIET, "CUDA_VISIBLE_DEVICES": first(gpus)}
    result = call(words, env=env)
    assert (result.returncode, result.stderr) == (0, "")
    return [json.loads((out / f"used{rank}").read_text()) for rank in range(ranks)]


@pytest.mark.parametrize(("size", "batch"), CASES)
@pytest.mark.parametrize("gpus", [1, 2, 8])
@pytest.mark.parametrize("stage", ON_GPUS)
def test_a_stage_on_gpus(trained, data, tmp_path, stage, gpus, size, batch):
    needs(gpus)
    if stage in DISTRIBUTED and size[0] % gpus:
        size = 256, 101  # repeated images change the curve
    flags = "--data", data(size), "--batch-size", batch, "--epochs", 2
    used = train(stage, tmp_path, gpus, *flags)
    assert_close(tmp_path, trained("01_cpu", size, batch, float64=True), APART)
    every = list(range(gpus))
    expected = {
        "02_single_gpu": [[0]],
        "03_dp": [every],
        "06_model_parallel": [every[:2]],
    }
    assert used == expected.get(stage, [[index] for index in every])


@pytest.mark.parametrize("stage", DISTRIBUTED)
def test_more_ranks_than_gpus_share_them(trained, data, tmp_path, stage):
    needs(1)
    flags = "--data", data((256, 101)), "--epochs", 2, "--backend", "gloo"
    assert train(stage, tmp_path, 1, *flags, processes=2) == [[0], [0]]
    assert_close(tmp_path, trained("01_cpu", (256, 101), float64=True), APART)


@pytest.mark.parametrize("stage", BEYOND.values())
def test_a_stage_beyond_on_gpus(trained, data, tmp_path, stage):
    gpus = CPU_PROCESSES[stage]
    needs(gpus)
    flags = "--data", data((256, 101)), "--epochs", 2
    used = train(stage, tmp_path, gpus, *flags)
    assert used == [[index] for index in range(gpus)]
    assert_close(tmp_path, trained("01_cpu", (256, 101), float64=True), APART)


@pytest.mark.parametrize("stage", [*DISTRIBUTED, *BEYOND.values()])
def test_ranks_share_a_gpu_by_nccl(trained, data, tmp_path, stage):
    needs_nccl_to_share()
    ranks = CPU_PROCESSES[stage]
    flags = "--data", data((256, 101)), "--epochs", 2
    assert train(stage, tmp_path, 1, *flags, processes=ranks) == [[0]] * ranks
    assert_close(tmp_path, trained("01_cpu", (256, 101), float64=True), APART)


@pytest.fixture
def hold_second_curve(tmp_path):
    """Return a function that compares the second curve on GPUs with the CPU's."""

    def held(stage, gpus, ranks):
        wrong = too_old(torch.__version__, [stage])
        if wrong:
            pytest.skip(wrong)
        # The scripts set float64 themselves and draw their weights in float32.
        used = train(
            stage, tmp_path, gpus, *SECOND_CURVE, processes=ranks, dtype="float32"
        )
        assert used == [[rank % gpus] for rank in range(ranks)]
        result = run(BY_NAME[stage].curve, *SECOND_CURVE, "--out", tmp_path / "cpu")
        assert result.returncode == 0, result.stderr
        ours, theirs = rows(tmp_path), rows(tmp_path / "cpu")
        assert len(ours) == 2
        assert_near(ours, theirs, APART)

    return held


@pytest.mark.parametrize("stage", TRANSFORMER.values())
def test_the_second_curve_on_gpus(hold_second_curve, stage):
    ranks = CPU_PROCESSES.get(stage, 1)
    needs(ranks)
    hold_second_curve(stage, ranks, ranks)


@pytest.mark.parametrize("stage", CUT)
def test_ranks_of_the_second_curve_share_a_gpu_by_nccl(hold_second_curve, stage):
    needs_nccl_to_share()
    hold_second_curve(stage, 1, CPU_PROCESSES[stage])


@pytest.mark.parametrize("stage", ["11_resume", "12_sharded_checkpoint"])
def test_a_run_goes_from_the_cpu_to_gpus_and_back(data, tmp_path, stage):
    """With one GPU per rank, streams and saved tensors are really on CUDA."""
    needs(2)
    path = edited(stage, tmp_path, MOMENTUM)
    flags = ["--data", data((256, 101))]
    for epochs, gpus in (1, 0), (2, 2), (3, 0):
        words = [*flags, "--epochs", epochs, "--resume"]
        train(stage, tmp_path / "out", gpus, *words, path=path)
    cpu = tmp_path / "cpu"
    path = edited("01_cpu", tmp_path, MOMENTUM)
    result = run("01_cpu", *flags, "--out", cpu, float64=True, path=path)
    assert result.returncode == 0, result.stderr
    assert_close(tmp_path / "out", cpu, APART)


@pytest.mark.slow
def test_make_on_gpus(tmp_path):
    """In float32, within `compare`'s tolerance, on any number of GPUs."""
    needs(1)
    options = {"env": SEEING, "timeout": 600}
    words = ["DATA=data/sample", f"OUT={tmp_path / 'runs'}"]
    words += [f"PY={sys.executable}"]  # the Python of the tests
    for target in [["doctor"], ["all"], ["bench", "QUICK=1"], ["trace"]]:
        result = call(["make", *target, *words], **options)
        assert (result.returncode, result.stderr) == (0, ""), target
    for stage in ON_GPUS:
        assert (tmp_path / "runs" / stage / "metrics.csv").exists()


@pytest.mark.slow
def test_the_notebooks_on_gpus(tmp_path):
    needs(1)
    words = [sys.executable, "-m", "nbconvert", "--to", "notebook", "--execute"]
    words += ["--output-dir", tmp_path, *sorted(ROOT.glob("notebooks/0*.ipynb"))]
    env = {**SEEING, "DATA": "data/sample"}
    result = call(words, env=env, timeout=600)
    assert result.returncode == 0, result.stderr
    assert len(list(tmp_path.iterdir())) == len(STAGES)


def test_gpus_say_what_the_fake_ones_say(tmp_path):
    needs(1)
    gpus = min(count_gpus(), 2)
    env = {**SEEING, "CUDA_VISIBLE_DEVICES": first(gpus), "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "tests/cuda_rules.py", tmp_path / "found.json"]
    result = call(words, env=env)
    assert result.returncode == 0, result.stderr
    found = json.loads((tmp_path / "found.json").read_text())
    rules = asked_of(gpus)
    assert len(rules) > 40
    wrong = {}
    for expression, expected in rules:
        if expected not in found[expression]:
            wrong[expression] = found[expression]
    assert wrong == {}
    for expression in TEXTS:
        assert found[expression] == words_of_the_kernel(expression)


def test_the_tests_of_the_cpu_see_no_gpus():
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""
    assert not torch.cuda.is_available()
