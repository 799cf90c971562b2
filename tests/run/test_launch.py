"""Promise: `make` runs every stage on what there is, and says what it runs."""

import re

import pytest

from conftest import ROOT, call
from tools.run import data, diffs, launch
from tools.run.plan import make_plan
from tools.run.stages import EVERY, STAGES


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


def test_make_runs_a_stage_and_shows_its_diff(tmp_path):
    """Without an error: some versions of PyTorch abort after a run over gloo."""
    settings = {"DATA": "data/sample", "OUT": str(tmp_path), "EPOCHS": "1"}
    settings |= {"GPUS": "cpu", "OMP_NUM_THREADS": "1"}
    result = make("ddp", *(f"{name}={text}" for name, text in settings.items()))
    assert (result.returncode, result.stderr) == (0, "")
    command = " ".join(make_plan("04_ddp", settings).command)
    assert result.stdout.startswith(f"$ CUDA_VISIBLE_DEVICES= {command}\n04_ddp: 2 pro")
    expected = diffs.diff("03_dp", "04_ddp")
    assert len(expected) > 10
    assert result.stdout.splitlines()[-len(expected) :] == expected
    assert "\033" not in result.stdout  # a pipe gets no colors


@pytest.fixture
def started(monkeypatch):
    """The (stage, words) of each command that a launch starts; none of them runs."""
    found = []

    def run_command(stage, environment, words, lock):
        found.append((stage, words))
        return 7 if stage == "03_dp" else 0

    monkeypatch.setattr(launch, "run_command", run_command)
    return found


@pytest.fixture
def main(monkeypatch, tmp_path):
    """A function that does what `make TARGET` does with such variables."""

    def call_main(target, **settings):
        for name, text in {"OUT": str(tmp_path), **settings}.items():
            monkeypatch.setenv(name, text)
        monkeypatch.setattr("sys.argv", ["launch", target])
        monkeypatch.setattr(launch, "end_with_make", lambda: None)  # of `make test`
        launch.main()

    return call_main


@pytest.mark.parametrize(
    ("target", "settings", "pair"),
    [
        ("ddp", {"BASE": "1"}, ("01_cpu", "04_ddp")),
        ("model_parallel", {}, ("02_single_gpu", "06_model_parallel")),
    ],
)
def test_the_diff_follows_the_run(target, settings, pair, main, started, capsys):
    main(target, DATA="data/sample", **settings)
    expected = diffs.diff(*pair)
    assert capsys.readouterr().out.splitlines()[-len(expected) :] == expected


@pytest.mark.parametrize(
    ("target", "settings", "line"),
    [
        ("cpu", {"EPOCHS": "0"}, "EPOCHS='0' must be a whole number of at least 1"),
        ("all", {"NPROC": "3"}, "3 processes cannot share a batch of 64 images: use "),
        ("cpu", {"DATA": "tests"}, "no MNIST in tests ("),
        ("cpu", {"ARGS": "--data tests"}, "no MNIST in tests ("),
        ("cpu", {"OUT": "Makefile/x"}, "cannot write to Makefile/x"),
        ("resume", {"ARGS": "--checkpoint no.pth"}, "there is no checkpoint no.pth"),
        ("dp", {"ARGS": "--wide"}, "03_dp: unrecognized arguments: --wide; it has --e"),
        ("dp", {"BASE": "13"}, "there is no stage '13': take one of 01_cpu, "),
    ],
)
def test_a_launch_refuses_before_it_starts(target, settings, line, main, started):
    with pytest.raises(SystemExit, match=f"^{re.escape(line)}"):
        main(target, **{"DATA": "data/sample", **settings})
    assert started == []


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["ddp", "NPROC=3"], "3 processes cannot share a batch of 64 images: use ARG"),
        (["diff", "A=01_cpu"], "name two stages: make diff A=02_single_gpu B=04_ddp"),
        (["diff", "A=01_cpu", "B=13"], "there is no stage '13': take one of 01_cpu, "),
        (["compare", "OUT=tests"], "no stage has run yet in tests"),
    ],
)
def test_make_refuses_in_one_line(words, line):
    result = make(*words, "DATA=data/sample", "GPUS=cpu")
    assert (result.returncode, result.stdout) == (2, "")
    first, *others = result.stderr.splitlines()
    assert first.startswith(line)
    assert all(re.match(r"make(\[\d\])?: \*\*\*", text) for text in others)


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


def test_all_stops_at_a_stage_that_fails(started, main, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(data, "FULL", tmp_path / "mnist")
    with pytest.raises(SystemExit, match="03_dp failed with exit status 7"):
        main("all", DATA="")
    assert [stage for stage, _ in started] == STAGES[:3]


@pytest.mark.parametrize("name", ["NPROC", "BASE", "EPOCHS"])
def test_a_bad_variable_is_refused_before_a_download(name, main, monkeypatch):
    monkeypatch.setattr(data, "choose", lambda: pytest.fail("MNIST was downloaded"))
    with pytest.raises(SystemExit, match="none"):
        main("ddp", DATA="", **{name: "none"})
