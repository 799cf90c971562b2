"""Promise: a learner can begin, check, get hints, see a solution and start over."""

import os
import shlex
import subprocess

import pytest
from mutants import copy

from conftest import ENV, call
from tools.lab.exercise import PARTS, along_the_path, find_exercise

HOW_MANY = len(along_the_path())


@pytest.fixture
def workshop(tmp_path, monkeypatch):
    """Return a separate workshop folder and a function that calls make with it."""
    folder = tmp_path / "workshop"
    monkeypatch.setenv("WORKSHOP", str(folder))

    def act(*words):
        return call(["make", *words], env=os.environ)

    return folder, act


def test_a_learner_begins_is_told_what_is_wrong_and_solves_it(workshop):
    folder, act = workshop
    mine = folder / "07_one_half" / "mnist.py"
    act("exercise", "E=08")
    begun = act("exercise", "E=07")
    assert begun.returncode == 0, begun.stderr
    task = begun.stdout.partition("\nRun it: make try E=07\n")[0]
    assert task.startswith("A loss of one half\n")
    assert max(map(len, task.splitlines())) < 80
    assert "Hints" not in mine.with_name("README.md").read_text()
    listed = act("exercises").stdout
    assert listed.endswith(f": 0 of {HOW_MANY} solved\n")
    assert all(f"\nPart {part}. {title}\n" in listed for part, title in PARTS.items())
    assert "done" not in listed

    wrong = act("check")  # checks the exercise begun last
    assert wrong.returncode == 2  # make's status for an error
    running, verdict, _, repeat = wrong.stdout.splitlines()
    assert running.startswith(f"Running {mine}")
    assert verdict.startswith("Not yet. The loss of epoch 1 is ")
    assert repeat.startswith("Repeat it: make try E=07 WITH=")

    mine.write_text(find_exercise("07").script("solution"))
    solved = act("check", "E=07_one_half").stdout
    assert "\nSolved: " in solved
    assert "](https://" in solved
    assert solved.endswith(f": 1 of {HOW_MANY} solved (07)\nNext: make check E=08\n")
    assert "done " in act("exercises").stdout


def test_hints_come_one_by_one_and_a_version_stays_as_it_is(workshop):
    folder, act = workshop
    mine = folder / "07_one_half" / "mnist.py"
    begun = act("exercise", "E=07")
    hints = [act("hint", "E=7").stdout for _ in range(4)]
    assert [hint.count(" of 3: ") for hint in hints] == [1, 2, 3, 3]
    assert "+    dist.all_reduce(totals)" in act("solution", "E=07").stdout
    mine.write_text("mine")
    again = act("exercise", "E=07").stdout
    assert "is as you left it" in again
    assert again.endswith(begun.stdout)  # the task
    assert mine.read_text() == "mine"


@pytest.mark.slow
def test_the_run_that_a_check_has_judged_is_tried_again(workshop):
    _, act = workshop
    act("exercise", "E=07")
    *_, how, repeat = act("check").stdout.splitlines()
    repeated = act(*shlex.split(repeat.partition("make ")[2])).stdout
    assert repeated.startswith(how.replace("This run was", "Two runs"))
    assert "  <- differs" in repeated
    nothing = act("try", "WITH=ranks=3")
    assert nothing.stderr.startswith("WITH has 'ranks=3': expected fields such as")


def test_a_script_that_does_not_compile_is_not_run(workshop):
    folder, act = workshop
    mine = folder / "07_one_half" / "mnist.py"
    act("exercise", "E=07")
    mine.write_bytes(b"def main(:  # caf\xe9\n")
    assert "Not yet. The run fails: SyntaxError: " in act("check").stdout
    assert "done " not in act("exercises").stdout


def test_a_reset_names_what_it_deletes_and_deletes_nothing_else(workshop):
    folder, act = workshop
    act("exercise", "E=07")
    mine = folder / "mine.txt"
    mine.touch()
    assert act("reset").stderr.startswith("which exercise? Pass its number")
    assert (folder / "07_one_half/mnist.py").exists()
    assert act("reset", "E=07").stdout == "exercise 07 was reset\n"
    assert list(folder.iterdir()) == [mine]
    again = act("reset", "E=07")
    assert again.returncode != 0
    assert again.stderr.startswith("exercise 07 hasn't begun; nothing was deleted\n")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["check"], "which exercise? Pass its number"),
        (["check", "E=99"], "there is no exercise '99'. To list them: make exercises"),
        (["hint", "E=1"], "exercise 01 hasn't begun. Try: make exercise E=01"),
    ],
)
def test_refusals(workshop, words, line):
    _, act = workshop
    result = act(*words)
    assert result.returncode != 0
    assert result.stderr.startswith(line)


def test_a_folder_that_cannot_be_written_is_named_in_a_line(workshop):
    folder, act = workshop
    folder.touch()  # so no user, not even root, can create files in it
    error, _ = act("exercise", "E=07").stderr.splitlines()  # ours, then make's
    assert error == f"{folder}/07_one_half: Not a directory"


def test_an_edited_stage_is_refused_with_the_command_that_restores_it(tmp_path):
    root = copy(tmp_path / "clone")
    path = root / "04_ddp/mnist.py"
    env = ENV | {"WORKSHOP": str(tmp_path)}

    def act(*words):
        return call(["make", *words], cwd=root, env=env)

    git = ["git", "-c", "user.name=n", "-c", "user.email=e"]
    for words in ["init", "-q"], ["add", "."], ["commit", "-qm", "first"]:
        subprocess.run([*git, *words], cwd=root, check=True)
    assert act("exercise", "E=07").returncode == 0
    path.write_text(path.read_text().replace("sampler.set_epoch(epoch)", "pass"))
    for words in ["exercise", "E=06"], ["check"], ["try"], ["solution", "E=07"]:
        error, _ = act(*words).stderr.splitlines()  # ours, then make's
        assert error.startswith("04_ddp/mnist.py was edited, but exercise 0")
        assert error.endswith("Try: git restore 04_ddp/mnist.py")
