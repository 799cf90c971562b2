"""Promise: a learner can begin, check, get hints, see a solution, and begin anew."""

import os
import subprocess

import pytest

from conftest import ROOT, call
from tools.lab import checks, commands, exercise, judge
from tools.lab.exercise import find_exercise
from tools.run import stages

TRIED = [  # number, whether the run ends well, a part of what it prints
    ("01", False, "Expected all tensors to be on the same device"),  # on a fake GPU
    ("13", True, "13_padded_shards: 3 processes on cpu (gloo"),
]


@pytest.fixture
def workshop(tmp_path, monkeypatch):
    """A workshop of its own, and a function that runs an action of the lab there."""
    environment = {**os.environ, "WORKSHOP": str(tmp_path / "workshop")}

    def act(action, *words):
        return call(["make", action, *words], env=environment)

    return tmp_path / "workshop", act


def test_the_way_of_a_learner(workshop):
    folder, act = workshop
    listed = act("exercises").stdout
    numbers = [line[:2] for line in listed.splitlines()[:31]]
    assert numbers == [f"{n:02}" for n in range(1, 32)]
    assert "done" not in listed
    early = act("check", "E=08")
    assert early.returncode != 0
    assert early.stderr.startswith("exercise 08 has not begun: 'make exercise E=08'\n")

    begun = act("exercise", "E=08")
    assert begun.returncode == 0, begun.stderr
    assert "make try E=08" in begun.stdout
    assert "make check E=08" in begun.stdout
    assert act("exercises").stdout.endswith(
        "\nNext: make check E=08\n0 of 31 solved, begun: 08\n"
    )
    script = folder / "08_local_loss" / "mnist.py"
    page = (script.parent / "README.md").read_text()
    assert "What you observe" in page
    assert "Hints" not in page

    wrong = act("check")  # of the one that was begun last
    assert wrong.returncode == 0  # no error of make's
    assert wrong.stderr == ""
    running, verdict = wrong.stdout.splitlines()
    assert running.startswith(f"Running {script}")
    assert verdict.startswith("Not yet. The loss of epoch 1 is given as")

    hints = [act("hint", "E=8").stdout for _ in range(4)]
    assert [hint.count(" of 3: ") for hint in hints] == [1, 2, 3, 3]
    solution = act("solution", "E=08").stdout
    assert "+    dist.all_reduce(totals)" in solution

    again = act("exercise", "E=08")
    assert again.returncode != 0
    assert "is there already, and yours" in again.stderr

    script.write_text(find_exercise("08").script("solution"))
    solved = act("check", "E=08_local_loss")
    assert solved.returncode == 0, solved.stderr
    assert "\nSolved: " in solved.stdout
    assert solved.stdout.endswith("1 of 31 solved (08)\nNext: make exercise E=01\n")
    assert "done " in act("exercises").stdout

    mine = folder / "mine.txt"
    mine.touch()
    assert act("reset", "E=all").stdout == "exercise 08 is new again\n"
    assert not script.exists()
    assert mine.exists()


@pytest.mark.parametrize(("number", "ends_well", "said"), TRIED)
def test_try_runs_a_script_as_its_page_means_it(workshop, number, ends_well, said):
    _, act = workshop
    begun = act("exercise", f"E={number}")
    assert begun.returncode == 0, begun.stderr
    tried = act("try", f"E={number}")
    assert (tried.returncode == 0) == ends_well
    assert said in tried.stdout + tried.stderr


def test_a_check_that_fails_takes_done_back(tmp_path, monkeypatch):
    begun = find_exercise("08")
    monkeypatch.setattr(commands, "workshop", lambda _: tmp_path)
    (tmp_path / "mnist.py").write_text("the script of the learner\n")
    monkeypatch.setattr(judge, "judge", lambda exercise, text: None)
    commands.check(begun)
    assert (tmp_path / ".done").exists()

    def fail(exercise, text):
        assert text == "the script of the learner\n"
        raise checks.Wrong("It is wrong.")

    monkeypatch.setattr(judge, "judge", fail)
    with pytest.raises(SystemExit, match=str(commands.NOT_YET)):
        commands.check(begun)
    assert not (tmp_path / ".done").exists()


def test_without_a_number_the_exercise_begun_last_is_meant(tmp_path, monkeypatch):
    monkeypatch.setenv("WORKSHOP", str(tmp_path))
    for when, number in enumerate(["08", "31", "05", "06"]):
        begun = find_exercise(number)
        commands.begin(begun)
        os.utime(tmp_path / begun.name / "README.md", (when, when))
    assert commands.last_begun().number == "06"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["check"], "which exercise? E=04, say"),
        (["check", "E=99"], "there is no exercise '99': 'make exercises' lists them"),
        (["hint", "E=1"], "exercise 01 has not begun"),
    ],
)
def test_refusals(workshop, words, line):
    _, act = workshop
    result = act(*words)
    assert result.returncode != 0
    assert result.stderr.startswith(line)


def test_the_workshop_is_ignored_by_git():
    assert "workshop/" in (ROOT / ".gitignore").read_text().splitlines()


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A folder with stage 4 alone, committed to git; returns its script's path."""
    path = tmp_path / "04_ddp" / "mnist.py"
    path.parent.mkdir()
    path.write_text("as committed\n")
    who = ["-c", "user.name=n", "-c", "user.email=e"]
    for words in ["init", "-q"], ["add", "."], [*who, "commit", "-qm", "first"]:
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    monkeypatch.setattr(stages, "ROOT", tmp_path)
    exercise.committed.cache_clear()
    yield path
    exercise.committed.cache_clear()


def test_an_edit_of_a_stage_does_the_lab_no_harm(repository, capsys):
    repository.write_text("as edited\n")
    assert exercise.stage_text("04_ddp") == "as committed\n"
    for number in "", "2":
        repository.write_text(f"as edited{number}\n")
        commands.restore("4")
        copy = repository.with_name(f"mnist_edited{number}.py")
        assert capsys.readouterr().out.endswith(f"your version is {copy}\n")
        assert copy.read_text() == f"as edited{number}\n"
        assert repository.read_text() == "as committed\n"
    commands.restore("ddp")
    assert capsys.readouterr().out == f"{repository} is as it was\n"
    repository.unlink()
    commands.restore("4")
    assert repository.read_text() == "as committed\n"


def test_without_git_the_lab_takes_the_file(repository, monkeypatch):
    repository.write_text("as edited\n")
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    assert exercise.stage_text("04_ddp") == "as edited\n"
    with pytest.raises(SystemExit, match="^git has no .*mnist.py here"):
        commands.restore("4")
    assert repository.read_text() == "as edited\n"
