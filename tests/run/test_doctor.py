"""Promise: `make doctor` says what works, and fails where a stage could not run."""

import os
import platform
import re
import shutil
import subprocess
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from conftest import ROOT, call, running, wait_for
from onecurve import api
from tools.run import data, doctor
from tools.run.gpus import count_cpus


@pytest.mark.slow
def test_a_line_for_each_check_and_one_for_the_instructor():
    result = call(["make", "doctor", "WHO=Ada L"], timeout=400)
    assert result.returncode == 0, result.stdout + result.stderr
    *lines, last = result.stdout.splitlines()
    verdicts = dict(line.split()[:2] for line in lines)
    assert list(verdicts) == ["packages", "gpus", "processes", "mnist"]
    assert "gloo, 2 processes: all_reduce is right" in lines[2]
    machine = r"\w+ \w+ \| Python 3\.[\d.]+ \| torch \S+ \| cores (\d+)"
    assert re.fullmatch(rf"Ada_L: ready \| {machine}", last)[1] == str(count_cpus())


def test_a_failure_gives_exit_status_1(monkeypatch, capsys, tmp_path):
    """All checks are made, and an error is shown without the warnings before it."""
    stderr = "W: a warning\n[rank0]: x.DistError: broken\n"
    child = SimpleNamespace(returncode=1, communicate=lambda timeout: ("", stderr))
    monkeypatch.setattr(doctor, "running", lambda *_, **options: nullcontext(child))
    root = shutil.copytree(data.SAMPLE, tmp_path / "sample")
    path = root / "MNIST/raw/t10k-labels-idx1-ubyte"
    path.write_bytes(path.read_bytes()[:-1])
    monkeypatch.setattr(data, "SAMPLE", root)
    monkeypatch.setattr(torch, "__version__", "2.3.0+cpu")
    with pytest.raises(SystemExit, match="a stage could not run here"):
        doctor.main("Eve")
    lines = capsys.readouterr().out.splitlines()
    assert "PyTorch 2.3.0+cpu is too old for 01_cpu, " in lines[0]
    assert lines[2].startswith("processes  FAILURE  DistError: broken: try ")
    assert f"{path} is damaged: " in lines[3]
    assert lines[4].startswith("Eve: not ready: PyTorch 2.3.0, processes, mnist | ")


def test_a_warning_is_no_failure(monkeypatch, capsys):
    def gpus():
        return "WARNING", "driver 1, but"

    for check in "packages", "gpus", "processes", "mnist":
        monkeypatch.setattr(doctor, check, gpus)
    doctor.main("Ada")
    assert "\nAda: ready | " in capsys.readouterr().out


def test_a_pytorch_too_old_for_later_stages_is_a_warning(monkeypatch):
    monkeypatch.setattr(torch, "__version__", "2.11.0+cu130")
    verdict, text = doctor.packages()
    assert verdict == "WARNING"
    assert text.startswith("PyTorch 2.11.0+cu130 is too old for 16_pipeline_1f1b: ")
    assert text.endswith("; the others run")


def test_what_is_damaged_or_slow_is_no_ok(monkeypatch, tmp_path):
    full = shutil.copytree(data.SAMPLE, tmp_path / "mnist")
    monkeypatch.setattr(data, "FULL", full)
    assert doctor.mnist() == ("OK", "data/sample, 5000 images; data/mnist, 5000")
    (full / "MNIST/raw/train-images-idx3-ubyte").unlink()
    with pytest.raises(ValueError, match="train-images-idx3-ubyte is missing"):
        doctor.mnist()
    child = SimpleNamespace(returncode=0, communicate=lambda timeout: ("right\n", ""))
    monkeypatch.setattr(doctor, "running", lambda *_, **options: nullcontext(child))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3})
    line = "right, but they share one core, which is slow"
    assert doctor.processes() == ("WARNING", line)
    monkeypatch.delenv("USER", raising=False)
    assert doctor.sender() == f"{os.getuid()}@{platform.node()}"


def spoil(rank):
    """Have a sum come out wrong, in a single number and on one rank."""
    all_reduce = torch.distributed.all_reduce

    def spoiled(value):
        all_reduce(value)
        value[-1] -= rank

    torch.distributed.all_reduce = spoiled


@pytest.mark.parametrize("prepare", [None, (spoil,)])
def test_a_wrong_sum_is_an_error(prepare):
    result = api.run([ROOT / "tools/run/probe.py"], 2, prepare=prepare)
    assert (result.returncode != 0) == bool(prepare), result.stderr
    if prepare:
        assert "ArithmeticError: gloo gave 2.0 instead of 3" in result.stderr


def test_ranks_that_do_not_answer_end_with_the_doctor(monkeypatch, tmp_path):
    """It has waited when both of them are there."""
    name = f"silent_{tmp_path.name}"
    words = "import os\nimport time\nopen(os.environ['RANK'], 'w')\ntime.sleep(999)\n"
    (tmp_path / f"{name}.py").write_text(words)

    def wait(child, timeout):
        for rank in "0", "1":
            wait_for(tmp_path / rank)
        raise subprocess.TimeoutExpired(child.args, timeout)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(doctor, "PROBE", name)
    monkeypatch.setattr(subprocess.Popen, "communicate", wait)
    verdict, said = doctor.processes()
    assert (verdict, said[:19]) == ("FAILURE", "no answer in 120 s:")
    assert not running(name)


@pytest.mark.parametrize(
    ("cuda", "error", "text"),
    [
        (None, "", "this torch is a CPU build: rm -r .venv"),
        ("13.2", "The driver is too old. Please update it", "The driver is too old"),
    ],
)
def test_a_driver_that_torch_cannot_use(cuda, error, text, monkeypatch, tmp_path):
    """That is no failure: the stages run on the CPU."""

    def init():
        raise RuntimeError(error)

    path = tmp_path / "nvidia-smi"
    path.write_text("#!/bin/sh\necho 'Driver Version: 550.54   CUDA Version: 12.4'\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(torch.cuda, "init", init)
    verdict, said = doctor.gpus()
    assert verdict == "WARNING"
    assert said.startswith(f"driver 550.54, but {text}")
    assert "Please" not in said and "\n" not in said
