"""Promise: `make doctor` says what works, and fails where a stage could not run."""

import re
import shutil
import sys
from types import SimpleNamespace

import pytest
import torch
from packaging.requirements import Requirement

from conftest import call
from tools.run import data, doctor


def test_a_line_for_each_check():
    result = call(["make", "doctor"], timeout=400)
    assert result.returncode == 0, result.stdout + result.stderr
    *lines, last = result.stdout.splitlines()
    found = [re.match(r"(.{14}) (OK|WARNING|FAILURE) +\S", line) for line in lines]
    assert all(found), result.stdout
    assert [match[1].strip() for match in found] == list(doctor.CHECKS)
    assert len(lines) == 11
    right = r" +OK +gloo, \d+ processes: all_reduce gives the right sum"
    assert re.search("processes" + right, result.stdout)
    assert re.search("lab" + right + ", (forkserver|spawn)", result.stdout)
    machine = r"\w+ \w+, Python 3\.[\d.]+, torch \S+, \d+ cores, 0 GPUs, data/"
    assert re.fullmatch(machine + "(sample|mnist): ready", last)


@pytest.mark.parametrize(
    ("package", "installed", "verdict", "text"),
    [
        (None, None, "OK", ", as pinned"),
        ("torch", "2.3.1", "FAILURE", "need PyTorch 2.9 or newer: over gloo, 2.7 and"),
        ("torch", "2.8.0+cpu", "FAILURE", "(pytorch#162338); here is 2.8.0"),
        ("torch", "2.9.1", "WARNING", "torch 2.9.1 instead of =="),
        ("tqdm", "4.0.0", "WARNING", "tqdm 4.0.0 instead of =="),
        ("tqdm", None, "FAILURE", "tqdm is missing: rm -r .venv, make setup"),
    ],
)
def test_packages_are_compared_with_the_pins(
    monkeypatch, package, installed, verdict, text
):
    pins = (doctor.ROOT / "requirements/stages.txt").read_text().splitlines()
    pinned = {}
    for line in pins:
        pin = Requirement(line) if line[0].isalpha() else None
        if pin and (not pin.marker or pin.marker.evaluate()):
            pinned[pin.name] = str(pin.specifier).removeprefix("==") + "+cpu"
    if package:
        pinned[package] = installed

    def version(name):
        if pinned[name] is None:
            raise doctor.metadata.PackageNotFoundError
        return pinned[name]

    monkeypatch.setattr(doctor.metadata, "version", version)
    found, said = doctor.packages()
    assert found == verdict
    assert text in said
    assert len(pinned) > 20


def refuse():
    sys.exit("no stage 04 here")


def test_a_failure_gives_exit_status_1(monkeypatch, capsys):
    """A refusal is one, too, and the checks after it are made."""
    checks = {"refusal": refuse, "disk": doctor.disk}
    monkeypatch.setattr(doctor, "CHECKS", checks)
    with pytest.raises(SystemExit, match="a stage could not run here"):
        doctor.main()
    refused, disk, last = capsys.readouterr().out.splitlines()
    assert re.fullmatch("refusal +FAILURE +SystemExit: no stage 04 here", refused)
    assert disk.startswith("disk")
    assert last.endswith(": FAILURE: refusal")


def test_warnings_do_not_end_it(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "CHECKS", {"disk": lambda: (doctor.WARNING, "small")})
    doctor.main()
    assert capsys.readouterr().out.splitlines()[-1].endswith(": ready")


@pytest.mark.parametrize(
    ("used", "advice"),
    [("SAMPLE", "git checkout data/sample"), ("FULL", "rm -r data/mnist, make data")],
)
def test_damaged_data_are_a_failure(used, advice, monkeypatch, tmp_path):
    root = shutil.copytree(data.SAMPLE, tmp_path / "mnist")
    monkeypatch.setattr(data, "FULL", tmp_path / "nowhere")
    monkeypatch.setattr(data, used, root)
    verdict, _ = doctor.mnist()
    assert verdict == (doctor.OK if used == "FULL" else doctor.WARNING)
    path = root / "MNIST/raw/t10k-labels-idx1-ubyte"
    path.write_bytes(path.read_bytes()[:-1])
    verdict, text = doctor.mnist()
    assert verdict == doctor.FAILURE
    assert text.startswith(f"{path} is damaged: ") and text.endswith(advice)


TOO_OLD = (
    "The NVIDIA driver on your system is too old (found version 12040). Please update "
    "your GPU driver by downloading and installing a new version from the URL: ..."
)


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Fake a machine: machine(GPUs that CUDA uses, words of nvidia-smi, its status)."""

    def pretend(count, printed="", status=0, capability=(9, 0)):
        for name in "CUDA_VISIBLE_DEVICES", *TF32:
            monkeypatch.delenv(name, raising=False)
        card = SimpleNamespace(
            name="card", total_memory=2**34, major=capability[0], minor=capability[1]
        )
        cuda = {
            "is_available": lambda: count > 0,
            "device_count": lambda: count or 2,  # as NVML says, whatever CUDA can
            "get_device_properties": lambda index: card,
            "get_arch_list": lambda: ["sm_75", "sm_90", "sm_90a", "compute_120"],
        }
        for name, function in cuda.items():
            monkeypatch.setattr(torch.cuda, name, function)
        monkeypatch.setattr(torch.version, "cuda", "13.2")
        path = tmp_path / "nvidia-smi"
        path.write_text(f"#!/bin/sh\nprintf '{printed}'\nexit {status}\n")
        path.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    return pretend


TF32 = "NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (TOO_OLD, f"too old (found version 12040): a newer one, or {doctor.OLDER}"),
        ("Error 802: not yet initialized\nmore", "Error 802: not yet initialized"),
    ],
)
def test_a_driver_that_cuda_cannot_use(machine, monkeypatch, error, text):
    def init():
        raise RuntimeError(error)

    machine(0, r"550.54\n550.54\n")
    monkeypatch.setattr(torch.cuda, "init", init)
    verdict, said = doctor.driver()
    assert verdict == doctor.WARNING
    assert said.startswith("550.54; nvidia-smi sees 2 GPUs, torch 0: ")
    assert said.endswith(text)
    assert doctor.gpus() == (doctor.OK, "none: every stage runs on the CPU")


def test_what_else_a_driver_may_be(machine, monkeypatch):
    machine(2, r"580.1\n580.1\n")
    assert doctor.driver() == (doctor.OK, "580.1; nvidia-smi and torch see 2 GPUs")
    machine(1, r"580.1\n580.1\n")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert doctor.driver()[1].endswith("torch 1: CUDA_VISIBLE_DEVICES is '1'")
    machine(0, r"NVIDIA-SMI has failed\nmore", status=9)
    assert doctor.driver() == (doctor.WARNING, "nvidia-smi: NVIDIA-SMI has failed")
    machine(0, r"580.1\n")
    monkeypatch.setattr(torch.version, "cuda", None)
    assert "this torch is a CPU build: rm -r .venv" in doctor.driver()[1]


def test_a_gpu_that_this_torch_was_not_built_for(machine):
    machine(1, capability=(7, 5))
    assert doctor.gpus() == (doctor.OK, "0: card, 16 GiB")
    machine(1, capability=(7, 0))
    verdict, text = doctor.gpus()
    assert verdict == doctor.FAILURE
    assert "compute capability 7.0, too old for this torch: rm -r .venv" in text
    assert text.endswith("whl/cu126")


@pytest.mark.parametrize("name", TF32)
def test_tf32_by_a_variable_is_said(machine, monkeypatch, name):
    machine(1)
    monkeypatch.setenv(name, "1")
    verdict, text = doctor.gpus()
    assert verdict == doctor.WARNING
    assert f"unset {name}" in text
    monkeypatch.setenv(name, "0")
    assert doctor.gpus()[0] == doctor.OK


def test_copies_between_gpus_that_do_not_arrive(machine, monkeypatch):
    broken = None

    def to(tensor, device):
        return tensor * 0 if device == broken else tensor

    machine(3)
    monkeypatch.setattr(torch.Tensor, "to", to)
    assert doctor.copies() == (doctor.OK, "from GPU to GPU arrive, 3 GPUs")
    broken = "cuda:2"
    verdict, text = doctor.copies()
    assert verdict == doctor.FAILURE
    assert text.startswith("what GPU 1 copies to GPU 2 does not arrive: turn the IOMMU")


def test_the_error_is_shown_and_not_a_warning_before_it(monkeypatch):
    script = "echo W: a warning >&2; echo '[rank0]: x.DistError: broken' >&2; exit 1"
    plan = SimpleNamespace(launcher=["sh", "-c", script], environment={})
    monkeypatch.setattr(doctor, "make_plan", lambda *_: plan)
    verdict, text = doctor.processes()
    assert verdict == doctor.FAILURE
    assert text.startswith("DistError: broken: try sh ")


@pytest.mark.parametrize(
    ("check", "free", "verdict", "text"),
    [
        ("memory", 2**26, "WARNING", "64 MiB free in /dev/shm: NCCL and DataLoader"),
        ("memory", 2**30, "OK", "1.0 GiB free in /dev/shm"),
        ("disk", 2**27, "WARNING", "128 MiB free: MNIST and the runs need 200"),
        ("disk", 2**30, "OK", "1 GiB free"),
    ],
)
def test_room_that_is_too_small(monkeypatch, check, free, verdict, text):
    """Docker gives 64 MiB of shared memory."""
    monkeypatch.setattr(doctor.os.path, "isdir", lambda path: True)
    usage = SimpleNamespace(free=free)
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda folder: usage)
    found, said = getattr(doctor, check)()
    assert (found, said[: len(text)]) == (verdict, text)


@pytest.mark.parametrize(
    ("count", "threads", "verdict", "text"),
    [
        (4, 4, "OK", "4 cores, torch uses 4 threads"),
        (4, 8, "WARNING", "torch uses 8 threads: too many, unset OMP_NUM_THREADS"),
        (1, 1, "WARNING", "two processes share one core, which is slow"),
    ],
)
def test_cores_and_threads(monkeypatch, count, threads, verdict, text):
    monkeypatch.setattr(doctor.os, "cpu_count", lambda: count)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    found, said = doctor.cores()
    assert found == verdict
    assert said.endswith(text)
