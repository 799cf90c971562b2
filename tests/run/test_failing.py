"""Promise: a failing run ends soon and leaves no process or partial file."""

import shutil
import signal
import sys
import time
from contextlib import suppress

import psutil
import pytest

from conftest import EVEN, ROOT, call, rows, running, start, wait_for
from tools.run.launch import run_lock
from tools.run.results import HEADS
from tools.run.stages import script

LONG = 5000  # epochs, more than a test waits for

if sys.platform != "linux":
    pytest.skip("processes are found as Linux lists them", allow_module_level=True)

# A shell makes background commands ignore Ctrl-C, and their children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


def ranks_of(stage, out):
    """Return the two ranks that train a stage into `out`, without their agent."""
    ranks = [p for p in running(str(out)) if "torchrun" not in " ".join(p.cmdline())]
    path = str(script(stage).relative_to(ROOT))
    ranks = [p for p in ranks if path in p.cmdline()]
    assert len(ranks) == 2
    return ranks


def start_make(target, out, *words, **options):
    """Start a run that lasts longer than a test waits."""
    words = [target, f"OUT={out}", f"EPOCHS={LONG}", "GPUS=cpu", *words]
    return start(["make", *words], **options)


def assert_nothing_runs(word):
    _, alive = psutil.wait_procs(running(word), timeout=60)
    assert not alive


@pytest.mark.slow
def test_a_killed_rank_starts_all_again_as_often_as_asked(data, tmp_path):
    """It restarts from the last saved epoch. One more kill ends the run."""
    out = tmp_path / "out"
    process = start_make("resume", out, f"DATA={data(EVEN)}", "RESTARTS=1")
    wait_for(out / "metrics.csv")
    dead = ranks_of("11_resume", out)
    dead[1].kill()
    psutil.wait_procs(dead, timeout=120)
    epochs = len(rows(out))
    end = time.monotonic() + 120
    while len(rows(out)) <= epochs:
        assert time.monotonic() < end
        time.sleep(0.05)
    ranks_of("11_resume", out)[0].kill()
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode != 0
    assert "exitcode" in stderr  # torchrun's report says which rank was killed
    assert stdout.count("11_resume: 2 processes") == 2
    assert_nothing_runs(str(out))
    text = (out / "metrics.csv").read_text()  # no partial row
    numbers = [int(line.split(",")[0]) for line in text.splitlines()[1:]]
    assert text.endswith("\n") and numbers == list(range(1, len(rows(out)) + 1))
    assert not (out / "model.pth").exists()  # written at the end


# A stage whose ranks start at once, without importing PyTorch, and never end.
ENDLESS = """
import argparse
import os
import time
from pathlib import Path


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path)
    parser.add_argument("--data", type=Path, default="data/sample")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--batch-size", type=int, default=64)
    return parser.parse_args()


(parse_args().out / os.environ["RANK"]).touch()
time.sleep(1000)
"""


@pytest.fixture
def family(tmp_path):
    """Yield make and {name: process} of its run of the stage above."""
    clone = tmp_path / "clone"
    for name in "tools", "02_single_gpu", "04_ddp", "data/sample":
        shutil.copytree(ROOT / name, clone / name)
    for name in "Makefile", "pyproject.toml":
        shutil.copy(ROOT / name, clone)
    (clone / "04_ddp/mnist.py").write_text(ENDLESS)
    (clone / ".venv").symlink_to(ROOT / ".venv")
    process = start_make("ddp", tmp_path / "out", cwd=clone)
    for rank in "0", "1":
        wait_for(tmp_path / "out" / rank)
    found = {"make": psutil.Process(process.pid)}
    parent = found["make"]
    for name in "launcher", "torchrun":
        (parent,) = parent.children()
        found[name] = parent
    found["rank 0"], found["rank 1"] = ranks_of("04_ddp", tmp_path / "out")
    yield process, found
    for one in found.values():
        with suppress(psutil.NoSuchProcess):
            one.kill()


@pytest.mark.parametrize(
    ("names", "how"),
    [
        pytest.param(["torchrun"], signal.SIGKILL, marks=pytest.mark.slow),
        pytest.param(["launcher"], signal.SIGKILL, marks=pytest.mark.slow),
        (["make"], signal.SIGKILL),
        pytest.param(["make", "launcher"], signal.SIGHUP, marks=pytest.mark.slow),
        (["make", "launcher"], signal.SIGINT),  # Ctrl-C
    ],
)
def test_the_ranks_end_with_what_started_them(names, how, family, tmp_path):
    process, found = family
    for name in names:
        found[name].send_signal(how)
    # Returns once all of them have closed their output.
    _, stderr = process.communicate(timeout=120)
    assert process.returncode != 0
    if how == signal.SIGINT:
        assert "\nstopped\n" in stderr
        assert "Traceback" not in stderr
    assert_nothing_runs(str(tmp_path / "out"))
    assert (tmp_path / "out/unfinished").exists()


def test_a_second_run_into_a_folder_is_refused(tmp_path):
    (tmp_path / "metrics.csv").write_text(HEADS[0])
    with run_lock(tmp_path):
        result = call(["make", "cpu", "EPOCHS=1", f"OUT={tmp_path}"])
    line = f"{tmp_path} is in use by another run. Choose another folder: OUT=DIR\n"
    assert result.stderr.startswith(line)
    assert (tmp_path / "metrics.csv").exists()


def test_a_full_disk_is_refused_before_a_run(tmp_path):
    """ulimit simulates it: no file may exceed 512 KiB."""
    words = f"ulimit -f 512 && make cpu OUT={tmp_path}/x"
    result = call(["bash", "-c", words])
    line = f"cannot write to {tmp_path}/x (File too large). Choose another folder: OU"
    assert result.stderr.startswith(line)
    assert result.stdout == ""
    assert list(tmp_path.iterdir()) == []
