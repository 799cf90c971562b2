"""Promise: a run that fails ends soon, leaves nothing running and nothing half-written."""

import os
import random
import shutil
import signal
import sys
import time

import psutil
import pytest
import torch

from conftest import (
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
    weights,
)
from tools.run import launch
from tools.run.stages import DISTRIBUTED

# A shell has its background commands ignore Ctrl-C, and they pass that on.
signal.signal(signal.SIGINT, signal.default_int_handler)


def assert_nothing_runs(word, seconds=10):
    _, alive = psutil.wait_procs(running(word), timeout=seconds)
    assert not alive


def assert_whole(out):
    """Assert that what a killed run left can be read, and that no row is cut."""
    assert len(weights(out)) == 4
    text = (out / "metrics.csv").read_text()
    epochs = [int(line.split(",")[0]) for line in text.splitlines()[1:]]
    assert epochs == list(range(1, len(rows(out)) + 1))
    assert text.endswith("\n")
    torch.load(out / "state.pth")


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
    wait_for(out / "state.pth")
    time.sleep(random.uniform(0, 1))
    ranks_of(stage, out)[rank].kill()
    _, stderr = process.communicate(timeout=30)
    assert process.returncode != 0
    assert "exitcode" in stderr  # torchrun's report says which rank was killed
    assert_nothing_runs(str(out))
    assert_whole(out)


@pytest.mark.parametrize("stage", ["01_cpu", "04_ddp"])
def test_ctrl_c_ends_a_stage(stage, tmp_path):
    out = tmp_path / "out"
    process = start_make(stage, out)
    wait_for(out / "state.pth")
    os.killpg(process.pid, signal.SIGINT)  # what a terminal does
    _, stderr = process.communicate(timeout=10)
    assert process.returncode != 0
    assert f"{stage}: stopped\n" in stderr
    assert "Traceback" not in stderr
    assert_nothing_runs(str(out), seconds=1)
    assert_whole(out)


@pytest.mark.parametrize("room", [200_000, 600_000])
def test_a_full_disk_keeps_the_earlier_files(room, data, tmp_path):
    """Played by a disk of its own size: too small for model.pth, or for both."""
    if os.geteuid() != 0 or call(["mount", "-t", "tmpfs", "-o", "size=1500k", "none",
                                  tmp_path]).returncode:  # fmt: skip
        pytest.skip("a small disk needs Linux, root and mount")
    try:
        out = tmp_path / "out"
        flags = ["--data", data(EVEN), "--out", out, "--epochs", 1]
        assert run("01_cpu", *flags).returncode == 0
        before = {path.name: path.read_bytes() for path in out.iterdir()}
        free = shutil.disk_usage(tmp_path).free
        (tmp_path / "others").write_bytes(bytes(free - room))
        result = run("01_cpu", *flags, "--seed", 1)
        assert result.returncode != 0
        assert "in save" in result.stderr
        assert "saved" not in result.stdout
        assert set(before) == {"model.pth", "state.pth", "metrics.csv"}
        for name, content in before.items():
            assert (out / name).read_bytes() == content
    finally:
        call(["umount", tmp_path])


def test_an_exception_on_one_rank_ends_all(data, tmp_path):
    line = "    rank, world_size = dist.get_rank(), dist.get_world_size()\n"
    wrong = "    assert rank == 0, 'rank 1 has a bug'\n"
    script = edited("04_ddp", tmp_path, (line, line + wrong))
    words = command("04_ddp", "--data", data(EVEN), "--out", tmp_path / "out")
    words[words.index("04_ddp/mnist.py")] = script
    result = call(words, timeout=60)  # a hang would take half an hour
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
    loads = [("05_ddp_inference", ["--checkpoint", tmp_path / "model.pth"])]
    loads += [(stage, ["--resume"]) for stage in ("01_cpu", "04_ddp")]
    for stage, more in loads:
        result = run(stage, *flags, *more)
        assert result.returncode != 0
        assert "epoch" not in result.stdout
        assert not proof.exists(), stage
    assert len(loads) == 3
    # The payload is a real one: it runs where everything is trusted.
    torch.load(tmp_path / "state.pth", weights_only=False)
    assert proof.exists()


def test_a_second_run_into_a_folder_is_refused(tmp_path):
    """As long as the first one runs, even where its launcher alone was killed."""
    make = start_make("01_cpu", tmp_path)
    assert make.stdout.readline().startswith("$ ")
    (launcher,) = psutil.Process(make.pid).children()
    while not (scripts := [child for child in launcher.children()
                           if "01_cpu/mnist.py" in child.cmdline()]):  # fmt: skip
        assert make.poll() is None
    (script,) = scripts
    try:
        for victim in make, launcher:
            victim.kill()
            victim.wait(timeout=10)
            second = call(["make", "dp", "DATA=data/sample", f"OUT={tmp_path}"])
            assert second.returncode != 0
            assert second.stderr.startswith(
                f"another run writes to {tmp_path}: name another folder, OUT=DIR\n"
            )
            assert "$ " not in second.stdout
    finally:
        script.kill()
    psutil.wait_procs([script], timeout=10)
    with launch.sole_use(tmp_path):
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


if sys.platform != "linux":
    pytest.skip("processes are looked up as Linux shows them", allow_module_level=True)
