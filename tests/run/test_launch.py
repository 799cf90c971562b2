"""Promise: `make` runs every stage on what there is, and says what it runs."""

import re
import time

import pytest

from conftest import (
    ROOT,
    call,
    ranks_of,
    rows,
    slow,
    start_make,
    wait_for,
)
from tools.run import compare, data, diffs, launch
from tools.run.plan import make_plan
from tools.run.stages import EVERY, STAGES

SAMPLE = "DATA=data/sample"


def make(*words):
    return call(["make", *words])


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


@pytest.mark.parametrize(
    ("words", "stages"),
    [
        (["single_gpu"], ("01_cpu", "02_single_gpu")),
        (["dp", "BASE=1"], ("01_cpu", "03_dp")),
        (["model_parallel"], ("02_single_gpu", "06_model_parallel")),
    ],
)
def test_the_diff_follows_the_run(words, stages, tmp_path):
    result = make(*words, SAMPLE, f"OUT={tmp_path}", "EPOCHS=1", "GPUS=cpu")
    assert result.returncode == 0, result.stderr
    expected = diffs.diff(*stages)
    assert len(expected) > 10
    assert result.stdout.splitlines()[-len(expected) :] == expected
    assert "\033" not in result.stdout  # a pipe gets no colors
    again = make("diff", f"A={stages[0]}", f"B={stages[1]}")
    assert again.stdout.splitlines()[2:] == expected


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["cpu", "EPOCHS=0"], "EPOCHS='0' must be a whole number of at least 1"),
        (["ddp", "NPROC=3"], "3 processes cannot share a batch of 64 images: use ARG"),
        (["all", "NPROC=3"], "3 processes cannot share a batch of 64 images: use ARG"),
        (["cpu", "DATA=tests"], "no MNIST in tests ("),
        (["cpu", "ARGS=--data tests"], "no MNIST in tests ("),
        (["cpu", "OUT=Makefile/x"], "cannot write to Makefile/x"),
        (["resume", "ARGS=--checkpoint no.pth"], "there is no checkpoint no.pth"),
        (["dp", "ARGS=--wide"], "03_dp has no flag --wide: it has --epochs, --batch-"),
        (["dp", "BASE=13"], "there is no stage '13': take one of 01_cpu, "),
        (["diff", "A=01_cpu"], "name two stages: make diff A=02_single_gpu B=04_ddp"),
        (["diff", "A=01_cpu", "B=13"], "there is no stage '13': take one of 01_cpu, "),
        (["compare", "OUT=tests"], "no stage has run yet in tests"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_make_refuses_before_it_starts(words, line):
    result = make(SAMPLE, *words, "GPUS=cpu")  # the last DATA= counts
    assert result.returncode != 0
    first, *others = result.stderr.splitlines()
    assert first.startswith(line)
    assert all(re.match(r"make(\[\d\])?: \*\*\*", text) for text in others)
    assert "$ " not in result.stdout


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("04_ddp", "did you mean ddp? "),  # the folder is there
        ("DDP", "did you mean ddp? "),
        ("stage4", "did you mean ddp? "),
        ("11", "did you mean resume? "),
        ("comapre", "did you mean compare? "),
        ("README.md", ""),
    ],
)
def test_a_target_that_is_not_there_is_refused(name, meant):
    result = make(name)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.count("\n") == 1
    assert f"there is no target {name}: {meant}'make' lists them" in result.stderr
    assert f"there is no target {name}" in make(name, "PYTHON=nowhere").stderr


@pytest.fixture
def started(monkeypatch):
    """The (stage, words) of each command that a launch starts; none of them runs."""
    found = []

    def run_command(stage, environment, words, lock):
        found.append((stage, words))
        return 7 if stage == "03_dp" else 0

    monkeypatch.setattr(launch, "run_command", run_command)
    return found


STATES = {  # stage -> what a run saves, and the name of what is set aside
    "11_resume": ("state.pth", "state.before.pth"),
    "12_sharded_checkpoint": ("checkpoints/1/.metadata", "checkpoints.before"),
}


@pytest.mark.parametrize("stage", STATES)
def test_restarts_do_not_go_on_with_an_earlier_run(stage, tmp_path, started):
    settings = {"DATA": "data/sample", "OUT": str(tmp_path), "RESTARTS": "3"}
    name, before = STATES[stage]
    state = tmp_path / name
    for arguments, stays in ("", False), ("", False), ("--resume", True):
        state.parent.mkdir(parents=True, exist_ok=True)
        state.write_text("of an earlier run")
        plan = make_plan(stage, {**settings, "ARGS": arguments})
        assert "TORCH_DISABLE_SHARE_RDZV_TCP_STORE" in plan.environment
        launch.run(plan)
        _, words = started.pop()
        assert "--max-restarts=3" in words
        assert words.count("--resume") == 1
        assert state.exists() == stays
        assert (tmp_path / before).exists()


@pytest.mark.parametrize("stage", STATES)
def test_where_there_is_nothing_to_resume_from_it_is_said(
    stage, tmp_path, capsys, started
):
    plan = make_plan(stage, {"OUT": str(tmp_path), "ARGS": "--resume"})
    plan.state.with_suffix("").mkdir()  # a folder of checkpoints, none of them complete
    launch.run(plan)
    line = f"there is no {plan.state} to resume from: starting at epoch 1\n"
    assert capsys.readouterr().out.startswith(line)
    path = tmp_path / STATES[stage][0]
    path.parent.mkdir(exist_ok=True)
    path.touch()
    launch.run(plan)
    assert "resume from" not in capsys.readouterr().out
    assert len(started) == 2


@slow
@pytest.mark.parametrize("stage", STATES)
def test_restarts_survive_a_killed_rank(stage, tmp_path):
    epochs = 20
    process = start_make(stage, tmp_path, "RESTARTS=3", f"EPOCHS={epochs}")
    wait_for(tmp_path / "metrics.csv")
    time.sleep(1)
    ranks_of(stage, tmp_path)[1].kill()
    stdout, stderr = process.communicate(timeout=180)
    assert process.returncode == 0, stderr
    assert stdout.count(f"{stage}: 2 processes") == 2  # it did start again
    assert len(rows(tmp_path)) == epochs
    first = tmp_path / "01_cpu"
    result = make("cpu", SAMPLE, f"OUT={first}", f"EPOCHS={epochs}")
    assert result.returncode == 0, result.stderr
    curves = [compare.read(out / "metrics.csv") for out in (tmp_path, first)]
    assert compare.judge(*curves, same_bits=False)[1]


def test_all_stops_at_a_stage_that_fails(started, tmp_path, monkeypatch, capsys):
    """And names the sample that it trains on once."""
    monkeypatch.setattr(data, "FULL", tmp_path / "mnist")
    monkeypatch.setattr(data, "OFFLINE", tmp_path)  # a download has failed before
    monkeypatch.setenv("DATA", "")
    monkeypatch.setenv("OUT", str(tmp_path))
    monkeypatch.setattr("sys.argv", ["launch", "all"])
    monkeypatch.setattr(launch, "end_with_make", lambda: None)  # of `make test`
    with pytest.raises(SystemExit, match="03_dp failed with exit status 7"):
        launch.main()
    assert [stage for stage, _ in started] == STAGES[:3]
    assert capsys.readouterr().out.count("data/sample: 4000 training and 1000") == 1


@pytest.mark.parametrize("name", ["NPROC", "BASE", "EPOCHS"])
def test_a_bad_variable_is_refused_before_a_download(name, monkeypatch):
    monkeypatch.setattr(data, "choose", lambda: pytest.fail("MNIST was downloaded"))
    monkeypatch.setenv("DATA", "")
    monkeypatch.setenv(name, "none")
    monkeypatch.setattr("sys.argv", ["launch", "ddp"])
    monkeypatch.setattr(launch, "end_with_make", lambda: None)
    with pytest.raises(SystemExit, match="none"):
        launch.main()
