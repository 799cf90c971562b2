"""What the tests share: runs of the stages, each made once, and small data sets."""

import functools
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

# What is not about GPUs must not see any; test_gpus.py alone gives them back.
# Workers of xdist inherit what their parent has hidden already.
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

# Several processes on two cores with PyTorch's default threads get in each other's way.
ENV = {**os.environ, "OMP_NUM_THREADS": "1"}
ENV.pop("RANK", None)
torch.set_num_threads(1)

DISTRIBUTED = ["04_ddp", "05_ddp_inference"]  # of the six
PARTIAL = 1012, 997  # numbers of images that leave a partial last batch of 96
EVEN = 1024, 997
# Further flags, by the size: a stage that ignores one of them has another curve.
OTHER = {PARTIAL: ["--hidden", 130, "--lr", 0.05, "--seed", 1]}
# Plain SGD has no state. What a learner may put in its place has one.
MOMENTUM = "lr=args.lr)", "lr=args.lr, momentum=0.9)"
ADAMW = "torch.optim.SGD", "torch.optim.AdamW"


@pytest.hookimpl(tryfirst=True)  # before xdist's own, which looks for the groups
def pytest_collection_modifyitems(config, items):
    """Deselect slow tests unless ALL=1; keep the tests of a file on one worker.

    Tests that name their own group come last: these groups are small, so that no worker
    waits long for another.
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
    """Return the parameters of a test, as of one that runs with ALL=1 only."""
    return pytest.param(*values, marks=pytest.mark.slow)


def command(stage, *flags, processes=2, path=None, by=()):
    """Return the words that run a stage, under torchrun where it needs that.

    processes=0: not even there. `path` is another script than the stage's own; `by` is
    a script that runs it, and the words for that.
    """
    words = [sys.executable]
    if stage in CPU_PROCESSES and processes:
        words += ["-m", "torch.distributed.run", "--standalone"]
        words += [f"--nproc-per-node={processes}"]
    path = path or script(stage).relative_to(ROOT)
    return [*words, *map(str, [*by, path, *flags])]


def call(words, timeout=600, **options):
    """Run a command in the root of the repository and return what came of it."""
    options = {"env": ENV, "cwd": ROOT, **options}
    words = list(map(str, words))
    options |= {"capture_output": True, "text": True, "timeout": timeout}
    return subprocess.run(words, **options)


def run(stage, *flags, processes=None, path=None, **options):
    """Do what `command` says, in forked processes, which is seconds faster.

    `options` are those of ranks.run. `path` is another script than the stage's own,
    such as `edited` has written.
    """
    if processes is None or stage not in CPU_PROCESSES:
        processes = CPU_PROCESSES.get(stage, 0)
    return api.run([path or script(stage), *flags], processes, **options)


def rows(out):
    """Return a list of [epoch, loss, correct, total], the rows of metrics.csv."""
    curve = compare.read(Path(out) / "metrics.csv")
    return [[epoch, *row] for epoch, row in enumerate(curve, start=1)]


def weights(out):
    """Return the tensors of model.pth."""
    return torch.load(Path(out) / "model.pth", weights_only=True)


def assert_near(ours, theirs, apart):
    """Assert that tensors, or numbers, in lists or dicts are at most so far apart."""
    exact = {"rtol": 0, "atol": apart, "allow_subclasses": False}
    torch.testing.assert_close(ours, theirs, **exact)


def assert_close(ours, theirs, apart=1e-12):
    """Assert that two runs differ by rounding only, and count the same images."""
    assert_near(weights(ours), weights(theirs), apart)
    assert_near(rows(ours), rows(theirs), apart)


def assert_identical(ours, theirs):
    """Assert that two runs have the same curve and weights, bit for bit."""
    assert_close(ours, theirs, apart=0)


def edited(stage, folder, *changes):
    """Write a stage's script with changes, pairs of texts; return its path."""
    path = Path(folder) / stage / "mnist.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(edit(script(stage).read_text(), *changes))
    return path


def run_edited(stage, data, out, changes, *flags, fails=False, **options):
    """Run a stage's script with changes into `out`, and return what came of it.

    Asserts that it ended well, unless it `fails`.
    """
    path = edited(stage, out / "script", *changes)
    words = ["--data", data, "--out", out, *flags]
    result = run(stage, *words, path=path, **options)
    assert fails or result.returncode == 0, result.stderr
    return result


def alone(rank, world_size):
    """Be the first of several ranks, of which the others are not there."""
    os.environ |= {"RANK": "0", "WORLD_SIZE": str(world_size)}


def believe_in_gpus(rank, folder, count):
    """Have a rank see fake GPUs; write down on which of them its layers work."""
    events = open(folder / f"rank{rank}", "w", buffering=1)  # noqa: SIM115

    def note(kind, device=None, **_):
        if kind == "backward":  # evaluation is not meant
            print(device, file=events)

    fake_cuda.gpus(count, note)


def used_gpus(folder):
    """Return the devices on which each rank has worked, as a set of their names."""
    return [set(path.read_text().split()) for path in sorted(folder.glob("rank*"))]


def running(word):
    """Return the processes whose command line has `word` in it."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if any(word in text for text in process.info["cmdline"] or []):
            found.append(process)
    return found


def until(is_so, seconds=300):
    """Wait until a function returns what is true; the machine may be busy."""
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, f"not so after {seconds} s"
        time.sleep(0.05)


def wait_for(path):
    """Wait until a run has written `path`."""
    until(path.exists)


def start(words, **options):
    """Start a command in a process group of its own, as a shell does."""
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
    """Return a function from (train, test) to an MNIST root with so many images."""

    @functools.cache
    def get(size):
        return cut(tmp_path_factory.mktemp("data"), *size)

    return get


@pytest.fixture(scope="session")
def trained(data, tmp_path_factory):
    """Return a function that trains a stage and returns its output folder.

    The same run is made once in a session of tests.
    """
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
    """Return a Chromium; ended after each module, as no other event loop can run.

    Where there is none the tests are skipped, but fail where CI=1 says that they count.
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
