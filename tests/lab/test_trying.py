"""Promise: `make try` shows the symptom: what should have been beside what is."""

import re
import shlex

import pytest

from conftest import call
from tools.lab import commands, trying
from tools.lab.exercise import find_exercise

TRIED = [  # number, does the learner's run end well, what is printed, in this order
    ("03", True, r"your model.pth:  module\.layers\.1.*\n.*right one:   layers\.1\."),
    ("15", False, r"gpu.pth  test 7\d\d/1000\n(.*\n)*.*deserialize object on a CUDA"),
    ("31", True, r"epoch 1 0\.7988\d+ +0\.7988\d+ +558/1000 +598/1000  <- differs\n"),
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


@pytest.mark.parametrize(("number", "ends_well", "said"), TRIED)
def test_a_symptom_is_seen(begin, capfd, number, ends_well, said):
    status = trying.try_script(begin(number))
    assert (status == 0) == ends_well
    told = capfd.readouterr()
    assert re.search(said, told.out + told.err), told.out + told.err


def test_what_a_message_says_is_repeated_by_its_command(begin):
    begin("08")
    checked = call(["make", "check", "E=08"], env=None).stdout
    ours, right = re.findall(r"\d\.\d{6}", checked)
    assert "on 2 ranks: 512 training and 101 test images, 64 images a step" in checked
    (command,) = re.findall(r"(?m)^Repeat it: (make try E=08 NPROC=2 .*)$", checked)
    repeated = call(shlex.split(command), env=None)
    assert repeated.returncode == 0, repeated.stderr
    ((our_loss, right_loss),) = re.findall(
        r"(?m)^epoch 1 +(\S+) +(\S+)", repeated.stdout
    )
    assert float(our_loss) == pytest.approx(float(ours), rel=1e-5)
    assert float(right_loss) == pytest.approx(float(right), rel=1e-5)


def test_a_run_is_resumed():
    setting = trying.planned(find_exercise("29"))
    first, second = setting.command_lines("mnist.py")
    assert first[-2:] == ["--epochs", 1]
    assert second[-3:] == ["--epochs", "3", "--resume"]
    assert first.count("--epochs") == 1


@pytest.mark.parametrize(
    ("number", "variable", "text", "line"),
    [
        ("08", "NPROC", "none", "NPROC='none' must be a whole number"),
        ("01", "NPROC", "2", "02_single_gpu is one process: NPROC is for"),
        ("08", "IMAGES", "512", "IMAGES=512: two numbers, "),
        ("08", "IMAGES", "4001,9", "IMAGES=4001,9: two numbers, .*4000,1000 at most"),
        ("08", "FAKE", "mice", "FAKE=mice: take one_gpu, "),
        ("08", "ARGS", "'", "ARGS=.* cannot be split"),
    ],
)
def test_refusals(monkeypatch, number, variable, text, line):
    monkeypatch.setenv(variable, text)
    with pytest.raises(SystemExit, match=line):
        trying.planned(find_exercise(number))


def test_what_a_right_script_refuses_is_refused_before_yours_runs(begin, capfd):
    exercise = begin("08")
    for variable, text, said in ("NPROC", "3", "multiple of 3"), ("ARGS", "--x", "--x"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(variable, text)
            with pytest.raises(SystemExit, match=f"a right script cannot.*({said})"):
                trying.try_script(exercise)
    assert "Yours" not in capfd.readouterr().out
