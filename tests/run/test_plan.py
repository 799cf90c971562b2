"""Promise: a plan says what runs where, and refuses what cannot work."""

import re

import pytest
import torch

from tools.run import gpus, stages
from tools.run.flags import parse_flags
from tools.run.plan import make_plan
from tools.run.stages import EVERY, load

FSDP = ["07_fsdp", "10_hybrid", "12_sharded_checkpoint"]
NCCL = {"NPROC": "4", "ARGS": "--backend nccl"}
TWO_NODES = {"NNODES": "2", "NODE_RANK": "0", "MASTER_ADDR": "host"}


@pytest.fixture
def plan(monkeypatch):
    """Return a function that plans a stage as on a machine with so many GPUs."""

    def make(stage, count=0, **settings):
        monkeypatch.setattr(gpus, "count_gpus", lambda: count)
        return make_plan(stage, {"DATA": "data/sample", **settings})

    return make


@pytest.mark.parametrize(
    ("stage", "count", "settings", "visible", "processes"),
    [
        ("04_ddp", 0, {}, None, 2),
        ("04_ddp", 1, {}, None, 2),
        ("04_ddp", 1, {"GPUS": "0"}, "0", 1),
        ("04_ddp", 4, {}, None, 4),
        ("04_ddp", 3, {}, None, 2),
        ("04_ddp", 3, {"ARGS": "--batch-size 66"}, None, 3),
        ("05_ddp_inference", 3, {"ARGS": "--checkpoint model.pth"}, None, 3),
        ("04_ddp", 4, {"GPUS": "0,2"}, "0,2", 2),
        ("04_ddp", 4, {"GPUS": "cpu"}, "", 2),
        ("04_ddp", 4, {"GPUS": "cpu", "NPROC": "4"}, "", 4),
        ("04_ddp", 1, {"NPROC": "2"}, None, 2),
        ("02_single_gpu", 4, {"GPUS": "2,3"}, "2", 0),
        ("06_model_parallel", 4, {"GPUS": "2,3"}, "2,3", 0),
        ("01_cpu", 4, {"GPUS": "2"}, None, 0),
        ("07_fsdp", 0, {}, None, 2),
        ("07_fsdp", 1, {}, "", 2),  # no two of them may share a GPU
        ("07_fsdp", 1, {"GPUS": "0"}, "0", 1),
        ("07_fsdp", 1, {"GPUS": "cpu", "NPROC": "4"}, "", 4),
        ("08_tensor_parallel", 3, {}, None, 3),
        ("09_pipeline", 4, {}, None, 2),
        ("10_hybrid", 0, {}, None, 4),
        ("10_hybrid", 3, {}, None, 2),
        ("10_hybrid", 7, {"ARGS": "--batch-size 66"}, None, 6),
        ("11_resume", 2, {"NPROC": "4"}, None, 4),
    ],
)
def test_what_runs_where(plan, stage, count, settings, visible, processes):
    """GPUS and NPROC to processes, on machines with 0 to 7 GPUs (not run here)."""
    made = plan(stage, count, **settings)
    assert made.environment.get("CUDA_VISIBLE_DEVICES") == visible
    assert made.environment["OMP_NUM_THREADS"] == "1"
    named = plan(stage, count, OMP_NUM_THREADS="8", **settings)
    assert "OMP_NUM_THREADS" not in named.environment
    assert made.processes == processes
    started = re.findall(
        r"torchrun --standalone --nproc-per-node=(\d+) ", " ".join(made.command)
    )
    assert started == ([str(processes)] if processes else [])
    shares = count and visible is None and processes > count
    assert ("--backend gloo" in " ".join(made.flags)) == bool(shares)


def test_gloo_is_asked_for_where_ranks_share_gpus(plan):
    for settings, words, backend in [
        ({"NPROC": "4"}, ["--backend", "gloo"], "gloo"),
        ({"GPUS": "1", "NPROC": "2"}, ["--backend", "gloo"], "gloo"),
        ({"NPROC": "4", "ARGS": "--backend=gloo"}, ["--backend=gloo"], "gloo"),
        ({"NPROC": "2"}, [], "nccl"),
        ({}, [], "nccl"),
        ({"GPUS": "cpu", "NPROC": "4"}, [], "gloo"),
    ]:
        made = plan("11_resume", 2, **settings)
        assert made.flags[4:] == words
        assert made.args.backend == backend


@pytest.mark.parametrize(
    ("stage", "settings", "line"),
    [
        ("04_ddp", {"NPROC": "0"}, "NPROC='0' must be a whole number of at least 1"),
        ("04_ddp", {"NPROC": "3"}, "3 processes cannot share a batch of 64 images: "),
        ("04_ddp", {"GPUS": "0,1,2"}, "3 processes cannot share a batch of 64 images"),
        ("04_ddp", NCCL, "--backend nccl: 4 processes share 3 GPUs, which needs gloo"),
        ("07_fsdp", {"NPROC": "4"}, "NPROC=4: each process needs a GPU of its own"),
        ("09_pipeline", {"NPROC": "3"}, "09_pipeline runs on 2 processes: use NPROC=2"),
        ("10_hybrid", {"NPROC": "3"}, "10_hybrid needs a multiple of 2 processes: use"),
        ("03_dp", {"ARGS": "--lr nan"}, "--lr nan must be more than 0"),
        ("01_cpu", {"ARGS": "--epochs 0"}, "--epochs 0: a run has at least one epoch"),
        ("03_dp", {"ARGS": "--hidden x"}, "03_dp: argument --hidden: invalid int valu"),
        ("03_dp", {"ARGS": "--wide"}, "03_dp: unrecognized arguments: --wide; it has "),
        ("03_dp", {"ARGS": "--batch 32"}, "03_dp: unrecognized arguments: --batch 32;"),
        ("01_cpu", {"ARGS": "'"}, 'ARGS="\'" cannot be split into words'),
        ("04_ddp", {"RESTARTS": "3"}, "04_ddp does not save its state: `make resume"),
        ("11_resume", {"RESTARTS": "0"}, "RESTARTS='0' must be a whole number of at "),
        ("11_resume", {"RESTARTS": "1", **TWO_NODES}, "RESTARTS works on one machine"),
        ("03_dp", TWO_NODES, "03_dp runs on one machine: NNODES needs a stage that "),
        ("04_ddp", {"ARGS": "--resume"}, "04_ddp: unrecognized arguments: --resume; i"),
    ],
)
def test_refusals(plan, stage, settings, line):
    """On a machine with three GPUs."""
    with pytest.raises(SystemExit, match=f"^{re.escape(line)}"):
        plan(stage, 3, **settings)


def test_gpus_that_are_refused(plan):
    line = "this machine has 2 GPUs, 0,1; use GPUS=0,1 or some of them, each once"
    for text in "2", "0,9", "0,0", "a", "0,", "0, 1", "-1", " ":
        with pytest.raises(SystemExit, match=line):
            plan("04_ddp", 2, GPUS=text)


def test_a_default_that_is_not_one_process_for_each_gpu_is_said(plan):
    shares = "processes cannot share a batch of 64 images"
    for stage, count, settings, note in [
        ("04_ddp", 1, {}, "1 GPU: 2 processes share it, over gloo; GPUS=0 takes one"),
        ("07_fsdp", 1, {}, "1 GPU: each process needs one of its own, so they run on "),
        ("04_ddp", 3, {}, f"3 {shares}: 2 run; with ARGS='--batch-size 63' or 66 all"),
        ("04_ddp", 3, TWO_NODES, f"6 {shares}: 4 run; with ARGS='--batch-size 60' or"),
    ]:
        (said,) = plan(stage, count, **settings).notes
        assert said.startswith(note)
    for count, settings in (4, {}), (0, {}), (1, TWO_NODES), (1, {"GPUS": "0"}):
        assert plan("04_ddp", count, **settings).notes == []


def see_gpus(monkeypatch, count, usable=True):
    """Have NVML see `count` GPUs, and CUDA be able to use them or not."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: usable)


@pytest.mark.parametrize(
    ("listed", "text", "visible"),
    [
        ("4,6", "1", "6"),
        ("4,6", "1,0", "6,4"),
        ("1", "0", "1"),
        ("GPU-abc,MIG-d-e", "1", "MIG-d-e"),
        ("", "1", "1"),
        ("4, 6", "cpu", ""),
    ],
)
def test_gpus_counts_those_that_the_shell_lists(monkeypatch, listed, text, visible):
    see_gpus(monkeypatch, len((listed or "0,1").split(",")))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", listed)
    made = make_plan("04_ddp", {"GPUS": text})
    assert made.environment["CUDA_VISIBLE_DEVICES"] == visible
    shown = f"CUDA_VISIBLE_DEVICES={listed} shows " if listed else "this machine has "
    with pytest.raises(SystemExit, match=f"^GPUS=2: {shown}"):
        make_plan("04_ddp", {"GPUS": "2"})


def test_gpus_that_cuda_cannot_use_are_refused_by_name(monkeypatch):
    """A driver that is too old, say: NVML counts GPUs, and the stages take the CPU."""
    see_gpus(monkeypatch, 2, usable=False)
    assert gpus.count_gpus() == 0
    assert make_plan("04_ddp", {}).processes == 2  # on the CPU
    with pytest.raises(SystemExit, match="^GPUS=0: CUDA finds no GPU .'make doctor'"):
        make_plan("02_single_gpu", {"GPUS": "0"})


def test_only_nnodes_says_that_there_are_several_nodes(plan):
    """MASTER_ADDR and the like are in the shell of many a cluster."""
    shell = {"MASTER_ADDR": "head", "MASTER_PORT": "1234", "NODE_RANK": "3"}
    assert plan("01_cpu", **shell).nodes.count == 1
    assert "--standalone" in plan("04_ddp", **shell).launcher


@pytest.mark.parametrize(
    ("installed", "refused", "end"),
    [
        ("2.3.1", list(EVERY.values()), "here is 2.3.1"),
        ("2.4.1", [*FSDP, "08_tensor_parallel", "09_pipeline"], "here is 2.4.1"),
        ("2.8.0+cpu", FSDP, "averaging them (pytorch#162338); here is 2.8.0+cpu"),
        ("2.9.0", [], ""),
    ],
)
def test_an_older_pytorch_is_refused(plan, installed, refused, end, monkeypatch):
    monkeypatch.setattr("tools.run.plan.version", lambda _: installed)
    for stage in EVERY.values():
        if stage not in refused:
            plan(stage)
            continue
        with pytest.raises(SystemExit, match=f"^{stage} needs PyTorch 2") as refusal:
            plan(stage)
        assert str(refusal.value).endswith(end)


@pytest.mark.parametrize("stage", EVERY.values())
def test_flags_are_read_as_the_script_reads_them(stage, monkeypatch):
    words = ["--data", "data/sample", "--out", "somewhere", "--lr", "1"]
    if stage in stages.RESUMES:
        words.append("--resume")
    module = load(stage)
    monkeypatch.setattr("sys.argv", ["mnist.py", *words])
    for device in "cpu", "cuda":
        monkeypatch.setattr(module, "DEVICE", device)
        assert parse_flags(stage, words, device) == module.parse_args()


def test_flags_of_a_script_with_an_error_are_refused(monkeypatch, tmp_path):
    path = tmp_path / "mnist.py"
    monkeypatch.setattr("tools.run.flags.script", lambda stage: path)
    for text in "def parse_args(:", "def parse_args():\n    return os.cpu_count()", "":
        path.write_text(text)
        with pytest.raises(SystemExit, match=f"^cannot read the flags of {path}: "):
            parse_flags("01_cpu", [], "cpu")
