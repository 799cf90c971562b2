"""What the tests share: runs of the stages, each made once, and small data sets."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tools.run import ranks
from tools.run.sample import cut
from tools.run.stages import DISTRIBUTED, ROOT, script

# Several processes on two cores with PyTorch's default threads get in each other's way.
ENV = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
ENV.pop("RANK", None)
torch.set_num_threads(1)

PARTIAL = 1012, 997  # numbers of images that leave a partial last batch of 96
EVEN = 1024, 997


def command(stage, *flags, processes=None, float64=False):
    """Return the words that run a stage, under torchrun where it needs that."""
    words = [sys.executable]
    if stage in DISTRIBUTED and processes != 0:
        words += ["-m", "torch.distributed.run", "--standalone"]
        words += [f"--nproc-per-node={processes or 2}"]
    if float64:
        words.append("tests/stages/float64.py")
    return [*words, str(script(stage).relative_to(ROOT)), *map(str, flags)]


def call(words, timeout=120, **options):
    """Run a command in the root of the repository and return what came of it."""
    options = {"env": ENV, **options}
    return subprocess.run(
        list(map(str, words)), cwd=ROOT, capture_output=True, text=True,
        timeout=timeout, **options,
    )  # fmt: skip


def run(stage, *flags, processes=2, float64=False, timeout=120, path=None):
    """Do what `command` says, in forked processes: seconds faster. processes=0: none.

    `path` is another script than the stage's own, such as `edited` has written.
    """
    processes = processes if stage in DISTRIBUTED else 0
    return ranks.run([path or script(stage), *flags], processes, float64, timeout)


def rows(out):
    """Return metrics.csv without the seconds: a list of [epoch, loss, correct, total]."""
    with open(Path(out) / "metrics.csv", newline="") as file:
        return [
            [int(r["epoch"]), float(r["loss"]), int(r["correct"]), int(r["total"])]
            for r in csv.DictReader(file)
        ]


def weights(out):
    """Return the tensors of model.pth."""
    return torch.load(Path(out) / "model.pth", weights_only=True)


def edited(stage, folder, *changes):
    """Write a stage's script with changes, pairs of texts, to `folder`; return its path."""
    text = script(stage).read_text()
    for old, new in changes:
        assert text.count(old) == 1, f"{stage} has {old!r} {text.count(old)} times"
        text = text.replace(old, new)
    path = Path(folder) / stage / "mnist.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """Return a function from (train, test) to an MNIST root with so many images."""
    roots = {}

    def get(size):
        if size not in roots:
            roots[size] = cut(tmp_path_factory.mktemp("data"), *size)
        return roots[size]

    return get


@pytest.fixture(scope="session")
def trained(data, tmp_path_factory):
    """Return a function that trains a stage and returns its output folder.

    The same run is made once in a session of tests.
    """
    done = {}

    def get(stage, size=EVEN, batch=64, processes=2, float64=False, epochs=2):
        processes = processes if stage in DISTRIBUTED else None
        key = stage, size, batch, processes, float64, epochs
        if key not in done:
            out = tmp_path_factory.mktemp(stage)
            flags = ["--data", ROOT / "data/sample" if size is None else data(size)]
            flags += ["--out", out, "--batch-size", batch, "--epochs", epochs]
            result = run(stage, *flags, processes=processes, float64=float64)
            assert result.returncode == 0, result.stderr
            (out / "stdout").write_text(result.stdout)
            (out / "stderr").write_text(result.stderr)
            done[key] = out
        return done[key]

    return get
