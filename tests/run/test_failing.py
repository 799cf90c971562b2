"""Promise: a run that fails ends soon, with nothing running or half-written."""

import os
import shutil
import signal
import sys
import time
from contextlib import suppress

import psutil
import pytest
import torch

from conftest import (
    EVEN,
    call,
    ranks_of,
    rows,
    run,
    running,
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


def test_ctrl_c_ends_a_stage(tmp_path):
    out = tmp_path / "out"
    process = start_make("04_ddp", out)
    wait_for(out / "metrics.csv")
    os.killpg(process.pid, signal.SIGINT)  # what a terminal does
    _, stderr = process.communicate(timeout=120)
    assert process.returncode != 0
    assert "04_ddp: stopped\n" in stderr
    assert "Traceback" not in stderr
    assert_nothing_runs(str(out))
    assert_whole(out)


def test_a_killed_rank_starts_all_again_as_often_as_asked(tmp_path):
    """From the last epoch that was saved. Then it ends the run."""
    out = tmp_path / "out"
    process = start_make("11_resume", out, "RESTARTS=1")
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
    assert_whole(out)


LAUNCHER = """\
import sys
from pathlib import Path
from tools.run import launch, supervise
launch.end_with_make()
folder = Path(__file__).parent
with launch.run_lock(folder) as lock:
    words = [sys.executable, str(folder / "torchrun.py")]
    sys.exit(supervise.run_command("04_ddp", {}, words, lock))
"""
TORCHRUN = """\
import subprocess
from pathlib import Path
words = ["sleep", "1000"]
ranks = [subprocess.Popen(words, start_new_session=True) for _ in range(2)]
Path(__file__).with_name("started").touch()
ranks[0].wait()
"""


@pytest.fixture
def family(tmp_path):
    """The processes of a run by make, by name: what torchrun starts only sleeps."""
    (tmp_path / "launcher.py").write_text(LAUNCHER)
    (tmp_path / "torchrun.py").write_text(TORCHRUN)
    rule = f"run:\n\t@{sys.executable} {tmp_path / 'launcher.py'}\n"
    (tmp_path / "Makefile").write_text(f"export PYTHONPATH = .\n{rule}")
    process = start(["make", "-f", tmp_path / "Makefile"])
    wait_for(tmp_path / "started")
    found = {"popen": process, "make": psutil.Process(process.pid)}
    parent = found["make"]
    for name in "launcher", "supervisor", "torchrun":
        (parent,) = parent.children()
        found[name] = parent
    found["rank 0"], found["rank 1"] = parent.children()
    yield found
    for one in found.values():
        with suppress(psutil.NoSuchProcess):
            one.kill()


@pytest.mark.parametrize(
    ("names", "how"),
    [
        (["torchrun"], signal.SIGKILL),
        (["torchrun"], signal.SIGTERM),
        (["supervisor"], signal.SIGKILL),
        (["supervisor"], signal.SIGTERM),
        (["launcher"], signal.SIGKILL),
        (["launcher"], signal.SIGTERM),
        (["make"], signal.SIGKILL),
        (["make", "launcher"], signal.SIGHUP),  # a closed terminal
        (["make", "launcher", "torchrun"], signal.SIGKILL),
    ],
)
def test_the_ranks_end_with_what_started_them(names, how, family):
    for name in names:
        family[name].send_signal(how)
    process = family.pop("popen")
    process.communicate(timeout=120)  # until none of them has its output open any more
    assert process.returncode != 0
    _, alive = psutil.wait_procs(family.values(), timeout=60)
    assert not alive
    assert len(family) == 6


def test_a_second_run_into_a_folder_is_refused(family, tmp_path):
    """Until the first has ended: also while the script alone is left of it."""
    line = f"^another run writes to {tmp_path}: name another folder, OUT=DIR$"
    with pytest.raises(SystemExit, match=line), launch.run_lock(tmp_path):
        pass
    parents = [family["supervisor"], family["launcher"]]
    for process in parents:
        process.suspend()  # so that it cannot end the script
    for process in parents:
        process.kill()
    psutil.wait_procs(parents, timeout=60)
    with pytest.raises(SystemExit, match=line), launch.run_lock(tmp_path):
        pass
    family["torchrun"].kill()
    psutil.wait_procs([family["torchrun"]], timeout=60)
    with launch.run_lock(tmp_path):
        pass


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
