"""Promise: a plan says what runs where, even on machines that we don't have."""

import re
import shlex
from pathlib import Path

import pytest
import torch

from tools.run import gpus, results, supervise
from tools.run.plan import make_plan
from tools.run.stages import EVERY, MNIST, TRANSFORMER


@pytest.fixture
def plan(monkeypatch):
    """Return a function that plans a stage for a machine with `count` GPUs."""

    def make(stage, count=0, several=False, **settings):
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
        return make_plan(stage, settings, several)

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return make


@pytest.mark.parametrize(
    ("stage", "count", "settings", "visible", "processes"),
    [
        ("04_ddp", 0, {}, None, 2),
        ("04_ddp", 1, {}, None, 2),  # they share it
        ("04_ddp", 1, {"GPUS": "0"}, "0", 1),
        ("04_ddp", 3, {}, None, 2),
        ("10_hybrid", 3, {}, None, 2),
        ("04_ddp", 3, {"ARGS": "--batch-size 66"}, None, 3),
        ("05_ddp_inference", 3, {"ARGS": "--checkpoint model.pth"}, None, 3),
        ("04_ddp", 4, {"GPUS": "0,2"}, "0,2", 2),
        ("04_ddp", 4, {"GPUS": "cpu", "NPROC": "4"}, "", 4),
        ("06_model_parallel", 4, {"GPUS": "2,3"}, "2,3", 0),
        ("07_fsdp", 1, {}, "", 2),  # FSDP ranks can't share a GPU
        ("07_fsdp", 1, {"NPROC": "1"}, None, 1),
        ("09_pipeline", 4, {}, None, 2),
        ("10_hybrid", 0, {}, None, 4),
        ("11_resume", 2, {"NPROC": "4"}, None, 4),
        ("13_gpt", 2, {}, None, 0),
        ("14_data_parallel", 3, {}, None, 3),  # a rank may have fewer sequences
        ("15_sequence_parallel", 3, {}, None, 2),  # must divide 4 heads
        ("16_pipeline_1f1b", 4, {"ARGS": "--blocks 4"}, None, 4),
        ("16_pipeline_1f1b", 4, {}, None, 2),
        ("17_context_parallel", 8, {}, None, 8),
        ("19_expert_parallel", 1, {}, "", 2),
        ("20_grid", 6, {}, None, 6),
    ],
)
def test_what_runs_where(plan, stage, count, settings, visible, processes):
    """Check the GPUs and processes planned for 0 to 8 GPUs; nothing runs."""
    made = plan(stage, count, **settings)
    assert made.environment.get("CUDA_VISIBLE_DEVICES") == visible
    assert made.environment["OMP_NUM_THREADS"] == "1"
    assert made.processes == processes
    started = re.findall(r"--nproc-per-node=(\d+) ", " ".join(made.command))
    assert started == ([str(processes)] if processes else [])
    shares = count and visible is None and processes > count
    assert ("--backend" in made.words) == bool(shares)


def test_what_is_given_reaches_the_command_and_args_win(plan):
    words = "--epochs 5 --backend mpi"
    made = plan("04_ddp", 1, NPROC="2", EPOCHS="2", ARGS=words)
    assert made.words.count("--backend") == 2  # gloo, since two share a GPU
    assert made.words[-2:] == ["--backend", "mpi"]
    assert made.args.epochs == 5
    assert "OMP_NUM_THREADS" not in plan("04_ddp", OMP_NUM_THREADS="4").environment


@pytest.mark.parametrize("room", [MNIST, TRANSFORMER])
def test_every_stage_has_the_flags_of_the_first_and_their_defaults(plan, room):
    first = vars(plan(next(iter(room.values()))).args)
    assert len(set(results.SHARED) & set(first)) >= 5
    for stage in room.values():
        flags = vars(plan(stage).args)
        expected = {**first, "out": Path("runs") / stage}
        assert {name: flags[name] for name in first} == expected


def test_refusals_on_a_machine_with_three_gpus(plan):
    with pytest.raises(SystemExit, match="3 processes cannot share 64 images a step"):
        plan("04_ddp", 3, GPUS="0,1,2")
    with pytest.raises(SystemExit, match="07_fsdp needs 4 GPUs, found 3. To use CPUs"):
        plan("07_fsdp", 3, NPROC="4")
    for stage in "15_sequence_parallel", "17_context_parallel", "19_expert_parallel":
        with pytest.raises(SystemExit, match="3 processes cannot share its work. Try"):
            plan(stage, 3, GPUS="0,1,2")


def test_all_and_beyond_give_each_stage_what_it_takes(plan):
    takes = {"01_cpu": 0, "04_ddp": 4, "09_pipeline": 2, "11_resume": 4}
    settings = {"GPUS": "2,3", "NPROC": "4", "RESTARTS": "2"}
    for stage, processes in takes.items():
        made = plan(stage, 4, several=True, **settings)
        assert made.environment["CUDA_VISIBLE_DEVICES"] == "2,3"
        assert made.processes == processes
        assert ("--max-restarts=2" in made.command) == (stage == "11_resume")
    for stage in EVERY.values():
        plan(stage, 0, several=True, NPROC="4")


@pytest.mark.parametrize(
    ("listed", "text", "visible"),
    [
        ("4,6", "1,0", "6,4"),
        ("GPU-abc,MIG-d-e", "1", "MIG-d-e"),
        ("", "1", "1"),
        ("4, 6", "cpu", ""),
    ],
)
def test_gpus_are_those_that_the_shell_lists(plan, monkeypatch, listed, text, visible):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", listed)
    made = plan("04_ddp", 2, GPUS=text)
    assert made.environment["CUDA_VISIBLE_DEVICES"] == visible
    for wrong in "2", "0,9", "0,0", "a", "0,", "0, 1", "-1", " ":
        line = f"^GPUS={wrong}: expected one or more of 0,1, each once$"
        with pytest.raises(SystemExit, match=line):
            plan("04_ddp", 2, GPUS=wrong)


def test_gpus_that_cuda_cannot_use_do_not_count(plan, monkeypatch):
    """With a driver that is too old, NVML counts GPUs, but stages use the CPU."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpus.count_gpus() == 0


def test_an_older_pytorch_is_refused(plan, monkeypatch):
    """Older versions have a bug in FSDP over gloo; the first six stages work."""
    monkeypatch.setattr("tools.run.plan.version", lambda _: "2.8.0+cpu")
    plan("04_ddp")
    line = r"^PyTorch 2.8.0.cpu is too old for 07_fsdp. Install 2.9 or newer "
    with pytest.raises(SystemExit, match=line):
        plan("07_fsdp")


def test_the_printed_command_is_the_one_that_runs(tmp_path, capsys):
    plan = make_plan(EVERY["ddp"], {"OUT": str(tmp_path / "my run's"), "GPUS": "cpu"})
    supervise.print_command(plan.environment, plan.command)
    sign, *printed = shlex.split(capsys.readouterr().out)
    assert sign == "$"
    assert printed[len(plan.environment) :] == plan.command
