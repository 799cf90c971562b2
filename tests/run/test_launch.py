"""Promise: `make` runs every stage on what there is, and says what it runs."""

import re
import shlex
import time

import pytest
import torch

from conftest import (
    ENV,
    ROOT,
    call,
    rows,
    running,
    slow,
    start_make,
    wait_for,
)
from tools.run import compare, diffs, launch, stages
from tools.run.stages import EVERY, STAGES, load, script

SAMPLE = "DATA=data/sample"


def make(*words, **options):
    return call(["make", *words], **options)


def test_help_lists_every_target():
    text = (ROOT / "Makefile").read_text()
    rules = re.findall(r"^([a-z_-]+(?: [a-z_]+)*):", text, re.MULTILINE)
    targets = {name for names in rules for name in names.split()} - {"help"}
    shown = re.findall(
        r"^  make ([a-z_]+(?:, [a-z_]+)*)  ", make().stdout, re.MULTILINE
    )
    printed = {name for names in shown for name in names.split(", ")}
    assert printed | {"help-variables"} == targets
    assert set(EVERY) < targets


@slow
def test_the_printed_command_does_the_same(tmp_path):
    result = make("ddp", SAMPLE, f"OUT={tmp_path / 'a'}", "EPOCHS=1", "NPROC=2")
    assert result.returncode == 0, result.stderr
    command = result.stdout.splitlines()[0].removeprefix("$ ")
    again = command.replace(str(tmp_path / "a"), str(tmp_path / "b"))
    assert again != command
    assert call(["sh", "-c", again]).returncode == 0
    assert rows(tmp_path / "a") == rows(tmp_path / "b")
    assert len(rows(tmp_path / "b")) == 1


def test_the_diff_follows_the_run(tmp_path):
    result = make("single_gpu", SAMPLE, f"OUT={tmp_path}", "EPOCHS=1", "GPUS=cpu")
    expected = diffs.diff("01_cpu", "02_single_gpu")
    assert result.stdout.splitlines()[-len(expected) :] == expected
    assert "\033" not in result.stdout  # a pipe gets no colours
    other = make("diff", "A=02_single_gpu", "B=6")
    assert other.stdout.splitlines()[2:] == diffs.diff(
        "02_single_gpu", "06_model_parallel"
    )


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["cpu", "EPOCHS=0"], "EPOCHS='0' must be a whole number of at least 1"),
        (["cpu", "EPOCHS=x"], "EPOCHS='x' must be a whole number of at least 1"),
        (["ddp", "NPROC=0"], "NPROC='0' must be a whole number of at least 1"),
        (["ddp", "NPROC=3"], "3 processes cannot share a batch of 64 images: take ARG"),
        (["cpu", "DATA=tests"], "no MNIST in tests ("),
        (["cpu", "OUT=Makefile/x"], "cannot write to Makefile/x"),
        (["ddp_inference", "ARGS=--checkpoint nowhere.pth"],
         "there is no checkpoint nowhere.pth"),
        (["cpu", "ARGS='"], "ARGS=\"'\" cannot be split into words"),
        (["dp", "ARGS=--lr -1"], "--lr -1.0 must be more than 0"),
        (["dp", "ARGS=--hidden x"], "argument --hidden: invalid int value: 'x'"),
        (["dp", "ARGS=--wide"], "03_dp has no flag --wide: it has --epochs, --batch-"),
        (["cpu", "ARGS=--checkpoint=x"], "01_cpu has no flag --checkpoint: it has"),
        (["cpu", "RESTARTS=3"], "01_cpu does not save its state: `make resume"),
        (["ddp", "RESTARTS=3"], "04_ddp does not save its state: `make resume"),
        (["resume", "RESTARTS=0"], "RESTARTS='0' must be a whole number of at least 1"),
        (["diff", "A=01_cpu"], "name two stages: make diff A=02_single_gpu B=04_ddp"),
        (["diff", "A=01_cpu", "B=13"], "there is no stage '13': take one of 01_cpu, "),
        (["compare", "OUT=tests"], "no stage has run yet in tests"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)  # fmt: skip
def test_make_refuses_before_it_starts(words, line):
    words = words if any("DATA" in word for word in words) else [*words, SAMPLE]
    result = make(*words, "GPUS=cpu")
    assert result.returncode != 0
    first, *others = result.stderr.splitlines()
    assert first.startswith(line)
    assert all(re.match(r"make(\[\d\])?: \*\*\*", text) for text in others)
    assert "$ " not in result.stdout


def plan(stage, there, **settings):
    """Return the environment and the command line that launch would run."""
    added, command = launch.plan(stage, {"DATA": "data/sample", **settings}, there)
    return added, shlex.join(command)


def test_what_runs_where():
    """GPUS and NPROC to processes, on machines with 0 to 7 GPUs (not run here)."""
    hidden, cores = "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS"
    cases = [  # stage, GPUs there, settings, CUDA_VISIBLE_DEVICES, processes
        ("04_ddp", 0, {}, None, 2),
        ("04_ddp", 1, {}, None, 2),
        ("04_ddp", 1, {"GPUS": "0"}, "0", 1),
        ("04_ddp", 4, {}, None, 4),
        ("04_ddp", 3, {}, None, 2),
        ("04_ddp", 3, {"ARGS": "--batch-size 66"}, None, 3),
        ("05_ddp_inference", 3, {"ARGS": "--checkpoint Makefile"}, None, 3),
        ("04_ddp", 7, {}, None, 4),
        ("04_ddp", 4, {"GPUS": "0,2"}, "0,2", 2),
        ("05_ddp_inference", 4, {"GPUS": "3,1"}, "3,1", 2),
        ("04_ddp", 4, {"GPUS": "cpu"}, "", 2),
        ("04_ddp", 4, {"GPUS": "cpu", "NPROC": "4"}, "", 4),
        ("04_ddp", 1, {"NPROC": "2"}, None, 2),
        ("02_single_gpu", 4, {"GPUS": "2,3"}, "2", None),
        ("03_dp", 4, {"GPUS": "2,3"}, "2,3", None),
        ("06_model_parallel", 4, {"GPUS": "2,3"}, "2,3", None),
        ("01_cpu", 4, {"GPUS": "2"}, None, None),
        ("07_fsdp", 0, {}, None, 2),
        ("07_fsdp", 1, {}, "", 2),  # no two of them may share a GPU
        ("07_fsdp", 3, {}, None, 2),
        ("07_fsdp", 1, {"GPUS": "0"}, "0", 1),
        ("07_fsdp", 1, {"GPUS": "cpu", "NPROC": "4"}, "", 4),
        ("08_tensor_parallel", 3, {}, None, 3),
        ("09_pipeline", 4, {}, None, 2),
        ("10_hybrid", 0, {}, None, 4),
        ("10_hybrid", 1, {}, "", 4),
        ("10_hybrid", 3, {}, None, 2),
        ("10_hybrid", 7, {"ARGS": "--batch-size 66"}, None, 6),
        ("11_resume", 1, {}, None, 2),  # as 04 and 05
        ("11_resume", 2, {"NPROC": "4"}, None, 4),
        ("12_sharded_checkpoint", 1, {}, "", 2),  # as 07
        ("12_sharded_checkpoint", 4, {}, None, 4),
    ]
    for stage, there, settings, visible, processes in cases:
        added, command = plan(stage, there, **settings)
        assert added.get(hidden) == visible, (stage, there, settings)
        found = re.findall(r"torchrun --standalone --nproc-per-node=(\d+) ", command)
        assert found == ([str(processes)] if processes else [])
        assert added[cores] == "1"
        assert cores not in plan(stage, there, OMP_NUM_THREADS="8", **settings)[0]
        shared = processes and there and visible is None and processes > there
        assert ("--backend gloo" in command) == bool(shared)
    assert len(cases) == 32


def test_gloo_is_asked_for_where_ranks_share_gpus():
    for stage in "04_ddp", "05_ddp_inference", "11_resume":
        _, command = plan(stage, 2, NPROC="4")
        assert command.endswith(" --backend gloo")
        _, command = plan(stage, 2, GPUS="1", NPROC="2")
        assert command.endswith(" --backend gloo")
        for settings in {"NPROC": "2"}, {}, {"GPUS": "cpu", "NPROC": "4"}:
            assert "--backend" not in plan(stage, 2, **settings)[1]
        _, command = plan(stage, 2, NPROC="4", ARGS="--backend gloo")
        assert command.count("--backend") == 1
        with pytest.raises(
            SystemExit, match="^--backend nccl: 4 processes share 2 GPUs"
        ):
            plan(stage, 2, NPROC="4", ARGS="--backend nccl")


@pytest.mark.parametrize(
    "stage", ["07_fsdp", "08_tensor_parallel", "12_sharded_checkpoint"]
)
def test_beyond_no_two_ranks_share_a_gpu(stage):
    with pytest.raises(
        SystemExit, match="^NPROC=4: each process needs a GPU of its own"
    ):
        plan(stage, 2, NPROC="4", ARGS="--backend gloo")


def test_the_diff_starts_from_base(tmp_path):
    words = [SAMPLE, f"OUT={tmp_path}", "EPOCHS=1", "GPUS=cpu", "BASE=1"]
    result = make("dp", *words)
    assert result.returncode == 0, result.stderr
    expected = diffs.diff("01_cpu", "03_dp")
    assert result.stdout.splitlines()[-len(expected) :] == expected
    assert expected != diffs.diff("02_single_gpu", "03_dp")


OLD = [  # PyTorch, stages that are refused, the end of the line
    ("2.3.1", list(EVERY.values()), "here is 2.3.1"),
    ("2.4.1", list(EVERY.values())[6:10] + ["12_sharded_checkpoint"], "here is 2.4.1"),
    ("2.8.0+cpu", ["07_fsdp", "10_hybrid", "12_sharded_checkpoint"],
     "add gradients up instead of averaging them (pytorch#162338); here is 2.8.0+cpu"),
    ("2.9.0", [], ""),
]  # fmt: skip


@pytest.mark.parametrize(("installed", "refused", "end"), OLD)
def test_an_older_pytorch_is_refused(installed, refused, end, monkeypatch):
    monkeypatch.setattr(stages, "version", lambda _: installed)
    for stage in EVERY.values():
        if stage in refused:
            with pytest.raises(
                SystemExit, match=f"^{stage} needs PyTorch 2"
            ) as refusal:
                plan(stage, 0)
            assert str(refusal.value).endswith(end)
        else:
            plan(stage, 0)


@pytest.mark.parametrize("stage", ["11_resume", "12_sharded_checkpoint"])
def test_restarts_do_not_go_on_with_an_earlier_run(stage, tmp_path, monkeypatch):
    settings = {"DATA": "data/sample", "OUT": str(tmp_path), "GPUS": "cpu"}
    settings["RESTARTS"] = "3"
    names = {
        "11_resume": ("state.pth", "state.before.pth"),
        "12_sharded_checkpoint": ("checkpoints/1/.metadata", "checkpoints.before"),
    }
    state = tmp_path / names[stage][0]
    before = tmp_path / names[stage][1]
    started = []

    def follow(stage, environment, words, lock):
        assert "TORCH_DISABLE_SHARE_RDZV_TCP_STORE" in environment
        started.append((words, state.exists()))
        return 0

    monkeypatch.setattr(launch, "follow", follow)
    for arguments, there in ("", False), ("", False), ("--resume", True):
        state.parent.mkdir(parents=True, exist_ok=True)
        state.write_text("of an earlier run")
        launch.run(stage, {**settings, "ARGS": arguments})
        words, found = started.pop()
        assert "--max-restarts=3" in words
        assert words.count("--resume") == 1
        assert found == there
        assert before.exists()


def test_where_there_is_nothing_to_resume_from_it_is_said(tmp_path, capsys):
    settings = {"OUT": str(tmp_path), "ARGS": "--resume"}
    said = f"there is no {tmp_path}/{{}} to resume from: from epoch 1, then\n"
    plan("11_resume", 0, **settings)
    assert capsys.readouterr().out == said.format("state.pth")
    (tmp_path / "state.pth").touch()
    (tmp_path / "checkpoints/1").mkdir(parents=True)  # not complete
    plan("12_sharded_checkpoint", 0, **settings)
    assert capsys.readouterr().out == said.format("checkpoints")
    (tmp_path / "checkpoints/1/.metadata").touch()
    plan("11_resume", 0, **settings)
    plan("12_sharded_checkpoint", 0, **settings)
    assert capsys.readouterr().out == ""


@slow
@pytest.mark.parametrize("stage", ["11_resume", "12_sharded_checkpoint"])
def test_restarts_survive_a_killed_rank(stage, tmp_path):
    epochs = 20
    process = start_make(stage, tmp_path, "RESTARTS=3", f"EPOCHS={epochs}")
    wait_for(tmp_path / "metrics.csv")
    time.sleep(1)
    ranks = []
    for one in running(str(tmp_path)):
        if "torchrun" not in " ".join(one.cmdline()) and one.name() != "make":
            ranks.append(one)
    ranks = [
        one for one in ranks if str(script(stage).relative_to(ROOT)) in one.cmdline()
    ]
    assert len(ranks) == 2
    ranks[1].kill()
    stdout, stderr = process.communicate(timeout=180)
    assert process.returncode == 0, stderr
    assert stdout.count(f"{stage}: 2 processes") == 2  # it did start again
    assert len(rows(tmp_path)) == epochs
    first = tmp_path / "01_cpu"
    result = make("cpu", SAMPLE, f"OUT={first}", f"EPOCHS={epochs}")
    assert result.returncode == 0, result.stderr
    curves = [compare.read(out / "metrics.csv") for out in (tmp_path, first)]
    assert compare.judge(*curves, same_bits=False)[1]


@pytest.mark.parametrize(
    ("stage", "processes", "said"),
    [
        ("07_fsdp", 3, "3 processes cannot share a batch of 64 images: take ARGS='--b"),
        ("07_fsdp", 4, "NPROC=4: each process needs a GPU of its own; here are 3"),
        ("09_pipeline", 3, "a pipeline of two halves: take NPROC=2"),
        ("10_hybrid", 3, "tensor parallelism in pairs: take NPROC=4"),
    ],
)
def test_processes_that_cannot_run_beyond(stage, processes, said):
    with pytest.raises(SystemExit, match=f"^{re.escape(said)}"):
        plan(stage, 3, NPROC=str(processes))


@pytest.mark.parametrize("stage", EVERY.values())
def test_make_reads_flags_as_the_script_does(stage, monkeypatch, tmp_path):
    flags = ["--data", "data/sample", "--out", str(tmp_path), "--lr", "1"]
    if stage in stages.RESUMES:
        flags.append("--resume")
    monkeypatch.setattr("sys.argv", ["mnist.py", *flags])
    assert launch.check_flags(stage, flags) == load(stage).parse_args()


@pytest.mark.parametrize(
    "text", ["2", "0,9", "0,0", "a", "0,", "0, 1", "-1", "0 1", " "]
)
def test_gpus_that_are_refused(text):
    with pytest.raises(SystemExit) as refusal:
        plan("04_ddp", 2, GPUS=text)
    assert "this machine has 2 GPUs, 0,1; take GPUS=0,1 or some of them" in str(
        refusal.value
    )


def test_a_default_that_is_not_one_process_for_each_gpu_is_said(capsys):
    nodes = {"NNODES": "2", "NODE_RANK": "0", "MASTER_ADDR": "host"}
    lines = [
        (1, {}, "1 GPU: 2 processes share it, over gloo; GPUS=0 takes one, alone"),
        (3, {}, "3 processes {} 2 run; ARGS='--batch-size 63' or 66 takes all"),
        (3, nodes, "6 processes {} 4 run; ARGS='--batch-size 60' or 66 takes all"),
    ]
    for there, settings, line in lines:
        plan("04_ddp", there, **settings)
        line = line.format("cannot share a batch of 64 images:")
        assert capsys.readouterr().out.endswith(f"{line}\n")
    for there, settings in (4, {}), (0, {}), (1, nodes), (1, {"GPUS": "0"}):
        plan("04_ddp", there, **settings)
        assert "process" not in capsys.readouterr().out
    for settings in {"GPUS": "0,1,2"}, {"NPROC": "3"}:
        with pytest.raises(SystemExit, match="^3 processes cannot share a batch of 64"):
            plan("04_ddp", 3, **settings)


def pretend_gpus(monkeypatch, count, usable=True):
    """Have NVML see `count` GPUs, and CUDA be able to use them or not."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: usable)


@pytest.mark.parametrize(
    ("listed", "text", "visible"),
    [("4,6", "1", "6"), ("4,6", "1,0", "6,4"), ("1", "0", "1"),
     ("GPU-abc,MIG-d-e", "1", "MIG-d-e"), (None, "1", "1"), ("4, 6", "cpu", "")],
)  # fmt: skip
def test_gpus_counts_those_that_the_shell_lists(monkeypatch, listed, text, visible):
    pretend_gpus(monkeypatch, len((listed or "0,1").split(",")))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if listed:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", listed)
    added, _ = plan("04_ddp", None, GPUS=text)
    assert added["CUDA_VISIBLE_DEVICES"] == visible
    with pytest.raises(SystemExit) as refusal:
        plan("04_ddp", None, GPUS="2")
    shown = f"CUDA_VISIBLE_DEVICES={listed} shows " if listed else "this machine has "
    assert shown in str(refusal.value)


def test_gpus_that_cuda_cannot_use_are_refused_by_name(monkeypatch):
    """A driver that is too old, say: NVML counts GPUs, and the stages take the CPU."""
    pretend_gpus(monkeypatch, 2, usable=False)
    assert launch.count_gpus() == 0
    assert "--nproc-per-node=2 " in plan("04_ddp", None)[1]  # on the CPU
    with pytest.raises(
        SystemExit, match="^GPUS=0: CUDA finds no GPU .why. make doctor"
    ):
        plan("02_single_gpu", None, GPUS="0")


def test_only_nnodes_says_that_there_are_several_nodes(tmp_path):
    """MASTER_ADDR and the like are in the shell of many a cluster."""
    shell = {"MASTER_ADDR": "head", "MASTER_PORT": "1234", "NODE_RANK": "3"}
    words = [SAMPLE, f"OUT={tmp_path}", "EPOCHS=1", "GPUS=cpu"]
    result = make("cpu", *words, env={**ENV, **shell})
    assert result.returncode == 0, result.stderr
    assert len(rows(tmp_path)) == 1
    assert "--standalone" in plan("04_ddp", 0, **shell)[1]


def test_all_stops_at_a_stage_that_fails(monkeypatch):
    ran = []

    def run(stage, settings):
        ran.append(stage)
        return 7 if stage == "03_dp" else 0

    monkeypatch.setattr(launch, "run", run)
    monkeypatch.setattr("sys.argv", ["launch", "all"])
    monkeypatch.delenv("MAKELEVEL", raising=False)  # `make test` started this process
    for name in "SIGTERM", "SIGHUP":  # main takes them over
        monkeypatch.setattr(launch.signal, name, launch.signal.SIGUSR2)
    with pytest.raises(SystemExit, match="03_dp failed with exit status 7"):
        launch.main()
    assert ran == STAGES[:3]


def test_the_diff_to_stage_06_is_the_one_from_02(tmp_path):
    result = make("model_parallel", SAMPLE, f"OUT={tmp_path}", "EPOCHS=1", "GPUS=cpu")
    expected = "\n".join(diffs.diff("02_single_gpu", "06_model_parallel"))
    assert result.stdout.endswith(f"\n{expected}\n")
