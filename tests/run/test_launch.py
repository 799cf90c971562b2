"""Promise: `make` runs every stage on what there is, and says what it runs."""

import pytest

from conftest import ENV, call, rows
from tools.run import launch
from tools.run.plan import make_plan
from tools.run.sample import cut
from tools.run.stages import EVERY

FEW = "GPUS=cpu", "EPOCHS=1"


def make(*words, **options):
    return call(["make", *words], **options)


def test_make_shows_the_diff_and_runs_a_stage(tmp_path):
    """Into a new folder, without an error: PyTorch may abort after a run over gloo.

    Of what torchrun writes for itself, nothing stays.
    """
    out = tmp_path / "not" / "there"
    (tmp_path / "temporary").mkdir()
    environment = {**ENV, "TMPDIR": str(tmp_path / "temporary")}
    result = make("ddp", *FEW, f"OUT={out}", env=environment)
    assert (result.returncode, result.stderr) == (0, "")
    for name in "torchelastic_*", "tmp*":
        assert list((tmp_path / "temporary").glob(name)) == []
    diff, _, run = result.stdout.partition("\n\n$ ")
    assert "\nFrom 03_dp to 04_ddp: " in diff
    assert "\n+        sampler.set_epoch(epoch)" in diff
    assert "\033" not in diff  # a pipe gets no colors
    flags = f"04_ddp/mnist.py --out {out} --epochs 1"
    torchrun = ".venv/bin/torchrun --standalone --nproc-per-node=2"
    start = f"CUDA_VISIBLE_DEVICES= {torchrun} {flags}\n04_ddp: 2 processes on cpu "
    assert run.startswith(start)
    assert run.endswith(f"saved {out}/model.pth\n")
    assert len(rows(out)) == 1


def test_the_shell_s_variables_do_not_count():
    shell = {"NPROC": "3", "EPOCHS": "x", "ARGS": "--wide", "DATA": "nowhere"}
    shell |= {"MASTER_ADDR": "head", "NODE_RANK": "3", "VENV": "x"}
    result = make("ddp", *FEW, "OUT=Makefile/x", env={**ENV, **shell})
    assert result.stderr.startswith("cannot write to Makefile/x: ")  # OUT alone counts


WRONG = [  # what a user types, and the line that refuses it and says what works
    ("cpu NPROC=4", "NPROC=4: 01_cpu is one process; torchrun starts others, such "),
    ("cpu EPOCHS=0", "EPOCHS='0' must be a whole number of at least 1: EPOCHS=2, say"),
    ("ddp NPROC=3", "04_ddp: 3 processes cannot share 64 images a step: use NPROC=2 A"),
    ("all NNODES=2", "NNODES=2: one stage takes it, not make all"),
    ("all OUT=o ARGS='--out e'", "ARGS has --out e: name one folder for all, OUT=DIR"),
    ("ddp GPUS=0", "GPUS=0: CUDA finds no GPU ('make doctor' says why): use GPUS=cpu"),
    ("cpu DATA=tests", "no MNIST in tests (tests/MNIST/raw/train-images-idx3-ubyte is"),
    ("cpu OUT=Makefile/x", "cannot write to Makefile/x: name another folder, OUT=DIR"),
    ("resume ARGS='--checkpoint no'", "there is no checkpoint no: a stage saves one "),
    ("dp ARGS=--wide", "mnist.py: error: unrecognized arguments: --wide"),
    ("dp ARGS='\"'", "ARGS='\"' cannot be split into words: No closing quotation"),
    ("ddp RESTARTS=3", "RESTARTS=3: resume and sharded_checkpoint take it, on one mac"),
    ("resume RESTARTS=1 NNODES=2", "RESTARTS=1: resume and sharded_checkpoint take it"),
    ("diff A=2", "name two stages: make diff A=02_single_gpu B=04_ddp"),
    ("diff A=2 B=13", "there is no stage '13': take one of 01_cpu, 02_single_gpu, 03"),
    ("ddp NODE_RANK=1", "NNODES is missing: NNODES=2 NODE_RANK=0 MASTER_ADDR=HOST, sa"),
]


@pytest.mark.parametrize(("words", "line"), WRONG, ids=[words for words, _ in WRONG])
def test_what_cannot_work_is_refused_before_it_starts(words, line):
    gpus = "" if "GPUS" in words else "GPUS=cpu"
    result = call(["bash", "-c", f"make {words} {gpus}"])
    assert (result.returncode, result.stdout) == (2, "")
    *usage, refusal, _ = result.stderr.splitlines()
    assert refusal.startswith(line)
    assert not usage or usage[0].startswith("usage: ")


def test_what_failed_leaves_no_result_of_an_earlier_run(tmp_path):
    """But a mark, which `make compare` reads, until a run ends well."""
    words = ["cpu", *FEW, f"OUT={tmp_path}", f"DATA={cut(tmp_path / 'data', 64, 10)}"]
    results = [tmp_path / name for name in ("metrics.csv", "model.pth")]
    for path in results:
        path.touch()
    mark = tmp_path / "unfinished"
    assert make(*words, "ARGS=--wide").returncode != 0  # which does not start
    assert [path.exists() for path in (*results, mark)] == [True, True, False]
    assert make(*words, "ARGS=--batch-size 0").returncode != 0
    assert [path.exists() for path in (*results, mark)] == [False, False, True]
    assert make(*words).returncode == 0
    assert [path.exists() for path in (*results, mark)] == [True, True, False]


def test_all_stops_at_a_stage_that_fails(tmp_path):
    result = make("all", *FEW, f"OUT={tmp_path}", "ARGS=--batch-size 0", "NPROC=1")
    assert result.returncode != 0
    assert "01_cpu failed with exit status 1" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["01_cpu"]


STATES = {  # target -> what a run saves, and where it is when the next run has started
    "resume": ("state.pth", "state.before.pth"),
    "sharded_checkpoint": ("checkpoints", "checkpoints.before"),
}


@pytest.mark.parametrize("target", STATES)
def test_only_resume_goes_on_with_an_earlier_run(target, tmp_path):
    """RESTARTS alone does not, and an evaluation takes nothing away."""
    state, before = (tmp_path / name for name in STATES[target])
    given = {"GPUS": "cpu", "OUT": str(tmp_path), "RESTARTS": "1"}
    state.mkdir()
    metrics = tmp_path / "metrics.csv"
    metrics.touch()
    stage = EVERY[target]
    launch.prepare_folder(make_plan(stage, {**given, "ARGS": "--resume"}))
    assert (state.exists(), before.exists(), metrics.exists()) == (True, False, True)
    made = make_plan(stage, given)
    assert "--resume" in made.command  # after a restart, from this run's own state
    launch.prepare_folder(made)
    assert (state.exists(), before.exists(), metrics.exists()) == (False, True, False)
    evaluation = {**given, "ARGS": "--checkpoint model.pth", "RESTARTS": ""}
    assert not make_plan("11_resume", evaluation).writes
