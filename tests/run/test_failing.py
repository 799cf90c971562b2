"""Promise: a run that fails ends soon, with nothing running or half-written."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time

import psutil
import pytest
import torch

from conftest import (
    DISTRIBUTED,
    EVEN,
    call,
    command,
    edited,
    ranks_of,
    rows,
    run,
    running,
    slow,
    start,
    start_make,
    wait_for,
)
from tools.run import launch

if sys.platform != "linux":
    pytest.skip("processes are looked up as Linux shows them", allow_module_level=True)

# A shell has its background commands ignore Ctrl-C, and they pass that on.
signal.signal(signal.SIGINT, signal.default_int_handler)


def assert_nothing_runs(word):
    _, alive = psutil.wait_procs(running(word), timeout=60)
    assert not alive


def assert_whole(out):
    """Assert that the curve of a killed run can be read, and that no row is cut."""
    text = (out / "metrics.csv").read_text()
    assert text.endswith("\n")
    epochs = [int(line.split(",")[0]) for line in text.splitlines()[1:]]
    assert epochs == list(range(1, len(rows(out)) + 1))
    assert len(epochs) > 0
    assert not (out / "model.pth").exists()  # which is written at the end


def family(process):
    """Return the processes of a run of torchrun that `make` has started, by name."""
    make = psutil.Process(process.pid)
    (launcher,) = make.children()
    (supervisor,) = launcher.children()
    (torchrun,) = supervisor.children()
    found = {"make": make, "launcher": launcher, "supervisor": supervisor}
    found["torchrun"] = torchrun
    assert len(torchrun.children()) == 2
    return found


@pytest.mark.parametrize("stage", DISTRIBUTED)
def test_a_run_ends_with_exit_status_0(stage, tmp_path):
    """Some versions of PyTorch abort at exit after a run over gloo."""
    flags = ["--data", "data/sample", "--out", tmp_path, "--epochs", 1]
    result = call(command(stage, *flags))
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize(("stage", "rank"), [*zip(DISTRIBUTED, [0, 1], strict=True)])
def test_a_killed_rank_ends_the_run(stage, rank, tmp_path):
    out = tmp_path / "out"
    process = start_make(stage, out)
    wait_for(out / "metrics.csv")
    time.sleep(random.uniform(0, 1))
    ranks_of(stage, out)[rank].kill()
    _, stderr = process.communicate(timeout=120)
    assert process.returncode != 0
    assert "exitcode" in stderr  # torchrun's report says which rank was killed
    assert_nothing_runs(str(out))
    assert_whole(out)


@pytest.mark.parametrize("stage", ["01_cpu", "04_ddp"])
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGHUP])
def test_ctrl_c_and_a_closed_terminal_end_a_stage(stage, how, tmp_path):
    out = tmp_path / "out"
    process = start_make(stage, out)
    wait_for(out / "metrics.csv")
    os.killpg(process.pid, how)  # what a terminal does
    _, stderr = process.communicate(timeout=120)
    assert process.returncode != 0
    assert f"{stage}: stopped\n" in stderr
    assert "Traceback" not in stderr
    assert_nothing_runs(str(out))
    assert_whole(out)


KILLED = [
    (["torchrun"], signal.SIGKILL),
    (["launcher"], signal.SIGKILL),
    (["make"], signal.SIGKILL),
    pytest.param(["torchrun"], signal.SIGTERM, marks=slow),
    pytest.param(["torchrun"], signal.SIGABRT, marks=slow),
    pytest.param(["supervisor"], signal.SIGKILL, marks=slow),
    pytest.param(["supervisor"], signal.SIGTERM, marks=slow),
    pytest.param(["launcher"], signal.SIGTERM, marks=slow),
    pytest.param(["launcher"], signal.SIGHUP, marks=slow),
    pytest.param(["make", "launcher", "torchrun"], signal.SIGKILL, marks=slow),
]


@pytest.mark.parametrize(("names", "how"), KILLED)
def test_the_ranks_end_with_what_started_them(names, how, tmp_path):
    out = tmp_path / "out"
    process = start_make("04_ddp", out)
    wait_for(out / "metrics.csv")
    found = family(process)
    ranks = ranks_of("04_ddp", out)
    for name in names:
        found[name].send_signal(how)
    process.communicate(timeout=120)  # until none of them has its output open any more
    assert process.returncode != 0
    _, alive = psutil.wait_procs(ranks, timeout=0)
    assert not alive
    assert_nothing_runs(str(out))
    assert_whole(out)


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 1.5 MB."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=1500k", "none", tmp_path]
    if os.geteuid() != 0 or call(mount).returncode:
        pytest.skip("a small disk needs Linux, root and mount")
    yield tmp_path
    call(["umount", tmp_path])


def test_a_full_disk_keeps_the_earlier_state(small_disk, data):
    """Of 11_resume, which has to go on from it; the disk has no room for another."""
    out = small_disk / "out"
    flags = ["--data", data(EVEN), "--out", out, "--epochs", 1]
    assert run("11_resume", *flags).returncode == 0
    before = [(out / name).read_bytes() for name in ("model.pth", "state.pth")]
    free = shutil.disk_usage(small_disk).free
    (small_disk / "others").write_bytes(bytes(free - 200_000))
    result = run("11_resume", *flags, "--seed", 1)
    assert result.returncode != 0
    assert "in save" in result.stderr
    assert "saved" not in result.stdout
    after = [(out / name).read_bytes() for name in ("model.pth", "state.pth")]
    assert after == before
    assert len(rows(out)) == 1


def test_a_full_disk_is_an_error(small_disk, data):
    (small_disk / "others").write_bytes(bytes(1_300_000))
    flags = ["--data", data(EVEN), "--out", small_disk / "out", "--epochs", 1]
    result = run("01_cpu", *flags)
    assert result.returncode != 0
    assert "in save" in result.stderr
    assert "saved" not in result.stdout


def test_an_exception_on_one_rank_ends_all(data, tmp_path):
    line = "    dist.init_process_group(args.backend)\n"
    wrong = "    assert rank == 0, 'rank 1 has a bug'\n"
    script = edited("04_ddp", tmp_path, (line, line + wrong))
    words = command("04_ddp", "--data", data(EVEN), "--out", tmp_path / "out")
    words[words.index("04_ddp/mnist.py")] = script
    result = call(words)  # a hang would take half an hour
    assert result.returncode != 0
    assert "AssertionError: rank 1 has a bug" in result.stderr
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
    checkpoint = ["--checkpoint", tmp_path / "model.pth"]
    for stage, more in ("05_ddp_inference", checkpoint), ("11_resume", ["--resume"]):
        result = run(stage, *flags, *more)
        assert result.returncode != 0
        assert "epoch" not in result.stdout
        assert not proof.exists(), stage
    # The payload is a real one: it runs where everything is trusted.
    torch.load(tmp_path / "state.pth", weights_only=False)
    assert proof.exists()


def test_a_second_run_into_a_folder_is_refused(tmp_path):
    """Until the first has ended: also while the script alone is left of it."""
    make = start_make("01_cpu", tmp_path)
    wait_for(tmp_path / "metrics.csv")
    (launcher,) = psutil.Process(make.pid).children()
    (supervisor,) = launcher.children()
    (script,) = supervisor.children()
    again = ["make", "dp", "DATA=data/sample", f"OUT={tmp_path}"]
    line = f"another run writes to {tmp_path}: name another folder, OUT=DIR\n"
    try:
        second = call(again)
        assert second.stderr.startswith(line)
        for process in supervisor, launcher:
            process.suspend()  # so that it cannot end the script
        for process in launcher, supervisor:
            process.kill()
        make.communicate(timeout=1)
    except subprocess.TimeoutExpired:  # the script has make's output open
        second = call(again)
        assert second.returncode != 0
        assert second.stderr.startswith(line)
        assert "$ " not in second.stdout
    else:
        pytest.fail("the script has ended")
    finally:
        script.kill()
    psutil.wait_procs([script], timeout=60)
    with launch.run_lock(tmp_path):
        pass


@slow
def test_two_runs_at_once_do_not_collide(tmp_path):
    runs = [
        start(["make", "ddp", "DATA=data/sample", f"OUT={tmp_path / name}", "EPOCHS=1"])
        for name in ("a", "b")
    ]
    for process in runs:
        _, stderr = process.communicate(timeout=120)
        assert process.returncode == 0, stderr
    assert rows(tmp_path / "a") == rows(tmp_path / "b")
