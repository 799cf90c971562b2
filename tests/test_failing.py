"""Promise: a run that fails ends soon, leaves nothing running and nothing half-written."""

import os
import random
import resource
import signal
import subprocess
import sys
import time

import psutil
import pytest
import torch

from conftest import ENV, EVEN, ROOT, call, command, rows, weights
from tools import soak
from tools.stages import DISTRIBUTED, STAGES, TARGETS

TARGET = {stage: target for target, stage in TARGETS.items()}
LONG = 500  # epochs: more than a test waits for

# A shell has its background commands ignore Ctrl-C, and they pass that on.
signal.signal(signal.SIGINT, signal.default_int_handler)


def running(word):
    """Return the processes whose command line has `word` in it."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if any(word in text for text in process.info["cmdline"] or []):
            found.append(process)
    return found


def ranks_of(stage, out):
    """Return the two processes that train a stage into `out`, without their agent."""
    ranks = [p for p in running(str(out)) if "torchrun" not in " ".join(p.cmdline())]
    ranks = [p for p in ranks if f"{stage}/mnist.py" in p.cmdline()]
    assert len(ranks) == 2
    return ranks


def start(words, **options):
    """Start a command in a process group of its own, as a shell does."""
    return subprocess.Popen(
        list(map(str, words)),
        cwd=ROOT,
        env=ENV,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **options,
    )


def start_make(stage, out, *words):
    words = ["DATA=data/sample", f"OUT={out}", f"EPOCHS={LONG}", "GPUS=cpu", *words]
    return start(["make", TARGET[stage], *words])


def wait_for(path, seconds=60):
    """Wait until a run has written `path`."""
    end = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < end, f"no {path} after {seconds} s"
        time.sleep(0.05)


def assert_nothing_runs(word, seconds=10):
    _, alive = psutil.wait_procs(running(word), timeout=seconds)
    assert not alive


def assert_whole(out):
    """Assert that what a killed run left can be read, and that no row is cut."""
    assert len(weights(out)) == 4
    curve = rows(out)
    assert [row[0] for row in curve] == list(range(1, len(curve) + 1))
    assert (out / "metrics.csv").read_text().endswith("\n")
    torch.load(out / "state.pth")


@pytest.mark.parametrize("stage", DISTRIBUTED)
def test_runs_end_with_exit_status_0(stage):
    """Five runs each, ten in all; `python -m tools.soak 04_ddp 100` makes more."""
    seen = soak.soak(stage, 5)
    assert dict(seen) == {(0, ""): 5}


@pytest.mark.parametrize("attempt", range(10))
def test_a_killed_rank_ends_the_run(attempt, tmp_path):
    chance = random.Random(attempt)
    stage, out = DISTRIBUTED[attempt % 2], tmp_path / "out"
    run = start_make(stage, out)
    wait_for(out / "state.pth")
    time.sleep(chance.uniform(0, 2))
    chance.choice(ranks_of(stage, out)).kill()
    _, stderr = run.communicate(timeout=30)
    assert run.returncode != 0
    assert "exitcode" in stderr  # torchrun's report says which rank was killed
    assert_nothing_runs(str(out))
    assert_whole(out)


@pytest.mark.parametrize("stage", STAGES)
def test_ctrl_c_ends_a_stage(stage, tmp_path):
    out = tmp_path / "out"
    run = start_make(stage, out)
    wait_for(out / "state.pth")
    os.killpg(run.pid, signal.SIGINT)  # what a terminal does
    _, stderr = run.communicate(timeout=10)
    assert run.returncode != 0
    assert f"{stage}: stopped\n" in stderr
    assert "Traceback" not in stderr
    assert_nothing_runs(str(out), seconds=1)
    assert_whole(out)


def test_ctrl_c_without_make(tmp_path):
    flags = ["--data", "data/sample", "--out", tmp_path, "--epochs", LONG]
    run = start(command("01_cpu", *flags))
    wait_for(tmp_path / "state.pth")
    run.send_signal(signal.SIGINT)
    _, stderr = run.communicate(timeout=10)
    assert run.returncode != 0
    assert stderr == "01_cpu: stopped\n"


@pytest.mark.parametrize("stage", ["01_cpu", "04_ddp", "05_ddp_inference"])
def test_a_full_disk_keeps_the_earlier_model(stage, data, tmp_path):
    """Played by a limit on the size of a file, below that of model.pth (400 kB)."""
    flags = ["--data", data(EVEN), "--out", tmp_path, "--epochs", 1]
    assert call(command(stage, *flags)).returncode == 0
    before = (tmp_path / "model.pth").read_bytes()
    assert len(before) > 400_000

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))

    result = call(command(stage, *flags, "--seed", 1), preexec_fn=limit)
    assert result.returncode != 0
    line = result.stderr.splitlines()[0]
    assert line == f"{stage}: [Errno 27] File too large"
    assert result.stderr.count(line) == 1
    assert 'mnist.py", line' not in result.stderr
    assert (tmp_path / "model.pth").read_bytes() == before


def test_an_exception_on_one_rank_ends_all(data, tmp_path):
    """Rank 1 alone meets an image file that is cut short."""
    cut = data((1024, 996))
    path = cut / "MNIST/raw/train-images-idx3-ubyte"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    script = tmp_path / "one_rank.py"
    script.write_text(
        "import os, runpy, sys\n"
        "sys.argv = sys.argv[1:]\n"
        f"if os.environ['RANK'] == '1': sys.argv += ['--data', {str(cut)!r}]\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')\n"
    )
    words = command("04_ddp", "--data", data(EVEN), "--out", tmp_path / "out")
    words.insert(words.index("04_ddp/mnist.py"), script)
    begin = time.monotonic()
    result = call(words, timeout=60)
    assert result.returncode != 0
    assert time.monotonic() - begin < 45  # a hang would take half an hour
    assert "is invalid for input of size" in result.stderr
    assert_nothing_runs(str(script))


class Payload:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_a_checkpoint_with_code_in_it_does_not_run_it(data, tmp_path):
    proof = tmp_path / "ran"
    torch.save({"layers.1.weight": Payload(proof)}, tmp_path / "model.pth")
    torch.save(Payload(proof), tmp_path / "state.pth")
    flags = ["--data", data(EVEN), "--out", tmp_path]
    loads = [("05_ddp_inference", ["--checkpoint", tmp_path / "model.pth"])]
    loads += [(stage, ["--resume"]) for stage in ("01_cpu", "04_ddp")]
    for stage, more in loads:
        result = call(command(stage, *flags, *more))
        assert result.returncode != 0
        assert "epoch" not in result.stdout
        assert not proof.exists(), stage
    assert len(loads) == 3
    # The payload is a real one: it runs where everything is trusted.
    torch.load(tmp_path / "state.pth", weights_only=False)
    assert proof.exists()


def test_two_runs_at_once_do_not_collide(tmp_path):
    runs = [
        start(["make", "ddp", "DATA=data/sample", f"OUT={tmp_path / name}", "EPOCHS=1"])
        for name in ("a", "b")
    ]
    for run in runs:
        _, stderr = run.communicate(timeout=120)
        assert run.returncode == 0, stderr
    assert rows(tmp_path / "a") == rows(tmp_path / "b")


if sys.platform != "linux":
    pytest.skip("processes are looked up as Linux shows them", allow_module_level=True)
