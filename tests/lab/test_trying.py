"""Promise: `make try` shows the symptom: what should have been beside what is."""

import re
import shlex

import pytest

from tools.lab import commands, trying
from tools.lab.exercise import find_exercise
from tools.lab.setting import Setting

KEPT = "model.pth", "metrics.csv", "state.pth"
TRIED = [  # number, does the learner's run end well, what is printed, in this order
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


def test_other_keys_are_shown(capsys):
    trying.show_keys({"a": 1}, {"a": 2})
    assert capsys.readouterr().out == ""
    trying.show_keys({"module.a": 1}, {"a": 1})
    told = capsys.readouterr().out
    assert re.search("your model.pth: +module.a\n.* right one: +a\n", told)


REPEATED = [  # number of an exercise, how its check runs a script besides
    ("08", {"processes": 2}),
    ("01", {"processes": 0, "fake": "one_gpu", "float64": False}),
    ("28", {"processes": 3, "resume": 1, "keep": KEPT}),
    ("29", {"processes": 3, "resume": 2, "flags": ("--resume", "--epochs", "4")}),
]


@pytest.mark.parametrize(("number", "how"), REPEATED)
def test_the_command_of_a_message_repeats_its_run(number, how, monkeypatch):
    checked = {"images": (512, 101), "flags": ("--epochs", "2"), "float64": True}
    setting = Setting(**checked | how)
    exercise = find_exercise(number)
    make, target, *variables = shlex.split(setting.make_try(exercise))
    assert (make, target) == ("make", "try")
    for word in variables:
        monkeypatch.setenv(*word.split("=", 1))
    assert trying.planned(exercise) == setting


def test_a_run_is_told():
    setting = Setting(processes=2, flags=("--epochs", "1"), resume=1, keep=("a", "b"))
    assert setting.described() == (
        "on 2 ranks: 4000 training and 1000 test images, 64 images a step, 1 epoch, "
        "stopped and resumed after 1 with a, b alone"
    )


def test_what_the_check_deletes_is_deleted(tmp_path):
    for name in "state.pth", "rank1.pth":
        (tmp_path / name).touch()
    assert Setting(processes=2).delete_others(tmp_path) == []
    kept = Setting(processes=2, keep=KEPT)
    assert kept.delete_others(tmp_path) == ["rank1.pth"]
    assert [path.name for path in tmp_path.iterdir()] == ["state.pth"]


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
