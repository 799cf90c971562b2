"""Shared by the tests: cached runs of the stages and small datasets."""

import functools
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

# Hide GPUs from all tests; only test_gpus.py restores them, from GPUS_GIVEN.
# xdist workers inherit the hidden setting, hence setdefault.
os.environ.setdefault("GPUS_GIVEN", os.environ.get("CUDA_VISIBLE_DEVICES", "all"))
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import psutil
import pytest
import torch

from onecurve import api
from tools.lab import fake_cuda
from tools.run import compare
from tools.run.edit import edit
from tools.run.sample import cut
from tools.run.stages import CPU_PROCESSES, ROOT, script

# With PyTorch's default threads, several processes on two cores slow each other down.
ENV = {**os.environ, "OMP_NUM_THREADS": "1"}
ENV.pop("RANK", None)
torch.set_num_threads(1)

DISTRIBUTED = ["04_ddp", "05_ddp_inference"]  # of the first six stages
PARTIAL = 1012, 997  # train and test images; the last batch of 96 is partial
EVEN = 1024, 997
# Extra flags by size; a stage that ignores one of them diverges.
OTHER = {PARTIAL: ["--hidden", 130, "--lr", 0.05, "--seed", 1]}
# Plain SGD has no state. These optimizers do, and learners may use them.
MOMENTUM = "lr=args.lr)", "lr=args.lr, momentum=0.9)"
ADAMW = "torch.optim.SGD", "torch.optim.AdamW"


@pytest.hookimpl(tryfirst=True)  # before xdist's hook, which reads the groups
def pytest_collection_modifyitems(config, items):
    """Deselect slow tests unless ALL=1; keep each file's tests on one worker.

    Tests with their own group run last: these groups are small, so no worker waits long
    for another.
    """
    if not os.environ.get("ALL"):
        slow = [item for item in items if item.get_closest_marker("slow")]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in slow]
    files = []
    small = []
    for item in items:
        if item.get_closest_marker("xdist_group"):
            small.append(item)
        else:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))
            files.append(item)
    items[:] = files + small


def slow(*values):
    """Return test parameters that run only with ALL=1."""
    return pytest.param(*values, marks=pytest.mark.slow)


def command(stage, *flags, processes=2, path=None, by=()):
    """Return the command that runs a stage, under torchrun if the stage needs it.

    processes=0 never uses torchrun. `path` replaces the stage's script; `by` is another
    script that runs it, with its arguments.
    """
    words = [sys.executable]
    if stage in CPU_PROCESSES and processes:
        words += ["-m", "torch.distributed.run", "--standalone"]
        words += [f"--nproc-per-node={processes}"]
    path = path or script(stage).relative_to(ROOT)
    return [*words, *map(str, [*by, path, *flags])]


def call(words, timeout=600, **options):
    """Run a command in the repository root and return the CompletedProcess."""
    options = {"env": ENV, "cwd": ROOT, **options}
    words = list(map(str, words))
    options |= {"capture_output": True, "text": True, "timeout": timeout}
    return subprocess.run(words, **options)


def run(stage, *flags, processes=None, path=None, **options):
    """Run a stage like `command`, but in forked processes, which saves seconds.

    `options` are passed to api.run. `path` replaces the stage's script, for example by
    one that `edited` wrote.
    """
    if processes is None or stage not in CPU_PROCESSES:
        processes = CPU_PROCESSES.get(stage, 0)
    return api.run([path or script(stage), *flags], processes, **options)


def rows(out):
    """Return the rows of metrics.csv as a list of [epoch, loss, correct, total]."""
    curve = compare.read(Path(out) / "metrics.csv")
    return [[epoch, *row] for epoch, row in enumerate(curve, start=1)]


def weights(out):
    """Return the tensors in model.pth."""
    return torch.load(Path(out) / "model.pth", weights_only=True)


def assert_near(ours, theirs, apart):
    """Assert that tensors or numbers, in lists or dicts, differ by at most `apart`."""
    exact = {"rtol": 0, "atol": apart, "allow_subclasses": False}
    torch.testing.assert_close(ours, theirs, **exact)


def assert_close(ours, theirs, apart=1e-12):
    """Assert that two runs differ only by rounding and count the same images."""
    assert_near(weights(ours), weights(theirs), apart)
    assert_near(rows(ours), rows(theirs), apart)


def assert_identical(ours, theirs):
    """Assert that two runs have bitwise equal curves and weights."""
    assert_close(ours, theirs, apart=0)


def edited(stage, folder, *changes):
    """Write a stage's script with changes, (old, new) pairs; return its path."""
    path = Path(folder) / stage / "mnist.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(edit(script(stage).read_text(), *changes))
    return path


def run_edited(stage, data, out, changes, *flags, fails=False, **options):
    """Run a stage's script with changes into `out` and return the result.

    Asserts that it succeeds unless `fails` is true.
    """
    path = edited(stage, out / "script", *changes)
    words = ["--data", data, "--out", out, *flags]
    result = run(stage, *words, path=path, **options)
    assert fails or result.returncode == 0, result.stderr
    return result


def alone(rank, world_size):
    """Act as rank 0 of `world_size` ranks without starting any other."""
    os.environ |= {"RANK": "0", "WORLD_SIZE": str(world_size)}


def use_fake_gpus(rank, folder, count):
    """Give a rank fake GPUs; log the device of each backward pass."""
    events = open(folder / f"rank{rank}", "w", buffering=1)  # noqa: SIM115

    def note(kind, device=None, **_):
        if kind == "backward":  # skip evaluation
            print(device, file=events)

    fake_cuda.gpus(count, note)


def used_gpus(folder):
    """Return the set of device names that each rank used."""
    return [set(path.read_text().split()) for path in sorted(folder.glob("rank*"))]


def running(word):
    """Return the processes whose command line contains `word`."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if any(word in text for text in process.info["cmdline"] or []):
            found.append(process)
    return found


def until(is_so, seconds=300):
    """Wait until `is_so()` is true; the limit allows for a busy machine."""
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, f"still false after {seconds} s"
        time.sleep(0.05)


def wait_for(path):
    """Wait until `path` exists."""
    until(path.exists)


def start(words, **options):
    """Start a command in its own process group, as a shell does."""
    options = {"env": ENV, "cwd": ROOT, **options}
    return subprocess.Popen(
        list(map(str, words)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **options,
    )


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """Return a function from (train, test) sizes to an MNIST root of these sizes."""

    @functools.cache
    def get(size):
        return cut(tmp_path_factory.mktemp("data"), *size)

    return get


@pytest.fixture(scope="session")
def trained(data, tmp_path_factory):
    """Return a cached function that trains a stage and returns its output folder."""
    done = {}

    def get(stage, size=EVEN, batch=64, processes=None, float64=False, epochs=2):
        processes = processes or CPU_PROCESSES.get(stage)
        key = stage, size, batch, processes, float64, epochs
        if key not in done:
            out = tmp_path_factory.mktemp(stage) / "new" / "out"
            flags = ["--data", ROOT / "data/sample" if size is None else data(size)]
            flags += ["--out", out, "--batch-size", batch, "--epochs", epochs]
            flags += OTHER.get(size, [])
            result = run(stage, *flags, processes=processes, float64=float64)
            assert result.returncode == 0, result.stderr
            (out / "stdout").write_text(result.stdout)
            (out / "stderr").write_text(result.stderr)
            done[key] = out
        return done[key]

    return get


@pytest.fixture(scope="module")
def browser():
    """Yield Chromium; close it after each module because it blocks other event loops.

    Without Chromium, the tests are skipped, or fail if CI=1.
    """
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = shutil.which("chromium") or playwright.chromium.executable_path
        if not Path(chromium).exists():
            missing = pytest.fail if os.environ.get("CI") else pytest.skip
            missing("no Chromium: .venv/bin/playwright install --with-deps chromium")
        options = ["--no-sandbox", "--disable-gpu"]
        one = playwright.chromium.launch(executable_path=chromium, args=options)
        yield one
        one.close()
