"""Promise: `make try` shows the symptom: your output next to the correct one."""

import re
from dataclasses import replace
from types import SimpleNamespace

import pytest

from conftest import slow
from tools.lab import commands, judge, trying
from tools.lab.exercise import find_exercise
from tools.lab.progress import workshop
from tools.lab.record import Wrong
from tools.lab.setting import of_page, read_fields

HANGS = "26"
FAILS = r"(.*\n)*Yours prints:\n(.*\n)*It (fails|hangs): "
TRIED = [  # exercise, regular expression for the output
    ("14", rf"gpu.pth  test 7{FAILS}RuntimeError: .*deserialize.*\n  at line .*load"),
    ("03", r"tensors in model\.pth:\n  yours  module\.layers\.1.*\n  right  layers\.1"),
]
MORE_TRIED = [
    (HANGS, rf"  epoch 2/3 {FAILS}.*\n  rank 0 "),
    (
        "02",
        r"(.*\n)*  12\.4\d ms a step\n(.*\n)*Yours prints:\n.*\n  0\.\d+ ms a step\n",
    ),
    ("04", r"steps of rank 0:\n  yours  375\n  right  189\n"),
    ("06", r"epoch 1:\n  yours  (.*)\n.*\n.*epoch 2:\n  yours  \1\n"),
    (
        "08",
        r"epoch 2 .* 852/1000\nepoch 2 .* -  <- differs\nepoch 3 .* 876/1000\nepoch 3 ",
    ),
    ("12", r"epoch 1 +(0|1)\.\d+ +\1\.\d+ +\d+/1002 +\d+/1000  <- differs\n"),
]


@pytest.fixture
def begin(tmp_path, monkeypatch):
    """Return a function that begins an exercise, given its number, and returns it."""
    monkeypatch.setenv("WORKSHOP", str(tmp_path))

    def begin_exercise(number):
        exercise = find_exercise(number)
        commands.begin(exercise)
        return exercise

    return begin_exercise


@pytest.mark.parametrize(
    ("number", "said"), TRIED + [slow(*case) for case in MORE_TRIED]
)
def test_a_symptom_is_seen(begin, capfd, monkeypatch, number, said):
    """Only the hanging script times out early; others have time on a busy machine."""
    monkeypatch.setattr(trying, "LIMIT", 8 if number == HANGS else 120)
    exercise = begin(number)
    path = workshop(exercise) / "mnist.py"
    trying.run_both(exercise, of_page(exercise.stage, **exercise.tried), path)
    told = capfd.readouterr()
    assert re.search(said, told.out), told.out
    assert told.err == ""


def test_only_equal_curves_are_said_to_be_equal(capsys):
    row = 0.5, 7, 10
    right = [("1", row), ("2", row)]
    others = (0.51, 7, 10), (0.5, 8, 10), (0.5, 7, 11), (float("nan"), 7, 10)
    curves = [[("1", other), right[1]] for other in others]
    for curve in [*curves, right[:1], [], [*right, right[1]], [*right, (None, row)]]:
        trying.show_curves(curve, right)
        told = capsys.readouterr().out
        assert "The curve is correct" not in told
        assert told.count("<- differs") >= 1
    trying.show_curves(right, right)
    assert "The curve is correct." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("check", "said"),
    [
        (lambda _, runs: {}["x"], "The check itself failed (KeyError: 'x')."),
        (lambda _, runs: runs.solution(flags=["--x"]), "A correct script can't run "),
    ],
)
def test_what_is_no_mistake_of_the_learner_is_the_lab_s_limit(check, said):
    exercise = find_exercise("09")
    exercise.load_check = lambda: SimpleNamespace(by_ddp=check)
    told = judge.verdict(exercise, exercise.script("solution"))
    assert said in told
    assert told.endswith("This is a limit of the lab and may not be your mistake.")


def test_a_run_that_shows_a_mistake_is_told_and_kept_as_it_was(tmp_path):
    def check(record, runs):
        record = runs(flags=["--lr", 0.5], fake="one_gpu", processes=1, epochs=1)
        raise Wrong(f"It writes to {record.out}")

    exercise = find_exercise("09")
    exercise.load_check = lambda: SimpleNamespace(by_ddp=check)
    told = judge.verdict(exercise, exercise.script("solution"))
    how = "on fake hardware (one gpu): 512 training and 101 test images, 64 images a st"
    assert told.startswith(f"It writes to out\nThis run was in one process, {how}")
    assert ", 1 epoch, in float64.\n" in told
    words = re.search(r'make try E=09 WITH="(.+)"', told)[1]
    kept = replace(of_page(exercise.stage), **read_fields(words))
    assert f"This run was {kept.described()}.\n" in told
    assert kept.command_lines()[0][2:4] == ["--lr", "0.5"]


def test_a_right_script_that_fails_ends_a_try(tmp_path):
    exercise = find_exercise("07")
    exercise.script = lambda name: "1 / 0"
    with pytest.raises(SystemExit, match="^even a correct script fails here"):
        trying.run_both(exercise, of_page(exercise.stage, **exercise.tried), tmp_path)
