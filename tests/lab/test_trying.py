"""Promise: `make try` shows the symptom: what should have been beside what is."""

import re

import pytest

from tools.lab import commands, trying
from tools.lab.exercise import find_exercise
from tools.lab.setting import Setting

FAILS = r"(.*\n)*Yours prints:\n(.*\n)*It (fails|hangs): "
TRIED = [  # number, what is printed, in this order
    ("14", rf"gpu.pth  test 7{FAILS}RuntimeError: .*deserialize.*\n  at line .*load"),
    ("26", rf"resumed after 1\.\n(.*\n)*  epoch 2/3 {FAILS}.*\n  rank 0 "),
    ("12", r"epoch 1 +(0|1)\.\d+ +\1\.\d+ +\d+/1002 +\d+/1000  <- differs\n"),
]


@pytest.fixture
def begin(tmp_path, monkeypatch):
    """A function that begins an exercise, by its number, and returns it."""
    monkeypatch.setenv("WORKSHOP", str(tmp_path))

    def begin_exercise(number):
        exercise = find_exercise(number)
        commands.begin(exercise)
        return exercise

    return begin_exercise


@pytest.mark.parametrize(("number", "said"), TRIED)
def test_a_symptom_is_seen(begin, capfd, monkeypatch, number, said):
    monkeypatch.setattr(trying, "PATIENCE", 5)
    trying.try_script(begin(number))
    told = capfd.readouterr()
    assert re.search(said, told.out), told.out
    assert told.err == ""


def test_only_equal_curves_are_said_to_be_equal(capsys):
    row = 0.5, 7, 10
    others = (0.51, 7, 10), (0.5, 8, 10), (0.5, 7, 11), (float("nan"), 7, 10)
    for curve in [[other, row] for other in others] + [[row], [], [row, row, row]]:
        trying.show_curves(curve, [row, row])
        told = capsys.readouterr().out
        assert "equal" not in told
        assert told.count("<- differs") >= 1
    trying.show_curves([row, row], [row, row])
    assert "The curves are equal." in capsys.readouterr().out


def test_a_run_is_resumed():
    setting = Setting(processes=2, flags=("--lr", "1"), resume=1)
    first, second = setting.command_lines("mnist.py")
    assert first == ["mnist.py", "--batch-size", 64, "--lr", "1", "--epochs", 1]
    assert second[-3:] == ["--epochs", 3, "--resume"]
