"""Promise: `make doctor` reports what works and fails if a stage can't run."""

import re
import subprocess
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from conftest import ROOT, call, running, wait_for
from onecurve import api
from tools.run import doctor
from tools.run.gpus import count_cpus


@pytest.mark.slow
def test_a_line_for_each_check_and_one_for_the_instructor():
    result = call(["make", "doctor"], timeout=400)
    assert result.returncode == 0, result.stdout + result.stderr
    *lines, last = result.stdout.splitlines()
    verdicts = dict(line.split()[:2] for line in lines)
    assert list(verdicts) == ["packages", "gpus", "processes"]
    assert "gloo, 2 processes: all_reduce is correct" in lines[2]
    machine = r"\w+ \w+ \| Python 3\.[\d.]+ \| torch \S+ \| cores (\d+)"
    assert re.fullmatch(rf"\S+: ready \| {machine}", last)[1] == str(count_cpus())


def test_a_failure_gives_exit_status_1(monkeypatch, capsys):
    """All checks run, and an error is shown without the warnings before it."""
    stderr = "W: a warning\n[rank0]: x.DistError: broken\n"
    child = SimpleNamespace(returncode=1, communicate=lambda timeout: ("", stderr))
    monkeypatch.setattr(doctor, "running", lambda *_, **options: nullcontext(child))
    monkeypatch.setattr(torch, "__version__", "2.3.0+cpu")
    with pytest.raises(SystemExit, match="fix the checks marked FAILURE"):
        doctor.main()
    lines = capsys.readouterr().out.splitlines()
    assert "PyTorch 2.3.0+cpu is too old for 01_cpu, " in lines[0]
    assert lines[2].startswith("processes  FAILURE  DistError: broken: try ")
    assert ": not ready: PyTorch 2.3.0, processes | " in lines[3]


def spoil(rank):
    """Make all_reduce wrong in a single number on one rank."""
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
    """The simulated timeout comes after both ranks have started."""
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
