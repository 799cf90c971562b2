"""Promise: a learner can begin, check, get hints, see a solution, and begin anew."""

import os
import shutil
import subprocess

import pytest

from conftest import ENV, ROOT, call
from tools.lab.exercise import PARTS, along_the_path, find_exercise
from tools.run.stages import EVERY, script

HOW_MANY = len(along_the_path())


@pytest.fixture
def workshop(tmp_path, monkeypatch):
    """A workshop of its own, and a function that calls make there."""
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
    listed = act("exercises", "WHO=Ada").stdout
    so_far = f"0 of {HOW_MANY} solved, begun: 08 07\n"  # as they were begun
    assert listed.endswith(f"\nNext: make check E=07\nAda: {so_far}")
    assert all(f"\nPart {part}. {title}\n" in listed for part, title in PARTS.items())
    assert "done" not in listed

    wrong = act("check")  # of the one that was begun last
    assert (wrong.returncode, wrong.stderr) == (0, "")  # no error of make's
    running, verdict, _, repeat = wrong.stdout.splitlines()
    assert running.startswith(f"Running {mine}")
    assert verdict.startswith("Not yet. The loss of epoch 1 is ")
    assert repeat == "Repeat it: make try E=07 LAST=1"

    mine.write_text(find_exercise("07").script("solution"))
    solved = act("check", "E=07_one_half", "WHO=Ada").stdout
    assert "\nSolved: " in solved
    assert "](https://" in solved
    so_far = f"1 of {HOW_MANY} solved (07), begun: 08\n"
    assert solved.endswith(f"\nAda: {so_far}Next: make check E=08\n")
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
    folder, act = workshop
    mine = folder / "07_one_half" / "mnist.py"
    act("exercise", "E=07")
    how = act("check").stdout.splitlines()[2]
    repeated = act("try", "LAST=1").stdout
    assert repeated.startswith(how.replace("That was", "Two runs"))
    assert "  <- differs" in repeated

    mine.write_text(find_exercise("07").script("solution"))
    act("check")
    nothing = act("try", "LAST=1")
    assert nothing.stderr.startswith("no check has a run of yours to repeat")
    mine.write_bytes(b"def main(:  # caf\xe9\n")
    assert "Not yet. The run fails: SyntaxError: " in act("check").stdout
    assert "done " not in act("exercises").stdout


def test_a_reset_names_what_it_deletes_and_deletes_nothing_else(workshop):
    folder, act = workshop
    act("exercise", "E=07")
    mine = folder / "mine.txt"
    mine.touch()
    assert act("reset").stderr.startswith("which exercise? E=05, say")
    assert (folder / "07_one_half/mnist.py").exists()
    assert act("reset", "E=07").stdout == "exercise 07 is new again\n"
    assert list(folder.iterdir()) == [mine]
    again = act("reset", "E=07")
    assert again.returncode != 0
    assert again.stderr.startswith("exercise 07 has not begun: nothing is deleted\n")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["check"], "which exercise? E=05, say"),
        (["check", "E=99"], "there is no exercise '99': 'make exercises' lists them"),
        (["hint", "E=1"], "exercise 01 has not begun: 'make exercise E=01'"),
        (["restore"], "which stage? S=4, say"),
        (["room"], "which file has the lines? FROM=chat.txt, say"),
    ],
)
def test_refusals(workshop, words, line):
    _, act = workshop
    result = act(*words)
    assert result.returncode != 0
    assert result.stderr.startswith(line)


def test_a_folder_that_cannot_be_written_is_named_in_a_line(workshop):
    folder, act = workshop
    folder.touch()  # so nothing can be made in there, whoever tries
    error, _ = act("exercise", "E=07").stderr.splitlines()  # ours, and make's
    assert error == f"{folder}/07_one_half: Not a directory"


@pytest.fixture
def copy(tmp_path):
    """Return a function that calls make in a copy of what the lab needs, and the copy.

    It has no git, and of the stages only two.
    """
    stages = "02_single_gpu", "04_ddp"
    for name in "tools", "exercises", *stages:
        leave = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, tmp_path / name, ignore=leave)
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / ".venv").symlink_to(ROOT / ".venv")
    alone = ENV | {"GIT_CEILING_DIRECTORIES": str(tmp_path.parent)}
    return lambda *words: call(["make", *words], cwd=tmp_path, env=alone), tmp_path


def test_make_works_where_one_edits_too(copy):
    act, root = copy
    act("exercise", "E=07")
    act("exercise", "E=06")  # begun last
    for words, folder, line in (
        (["hint"], "workshop/07_one_half", "1 of 3: "),
        (["hint", "E=7"], "workshop/06_same_order", "1 of 3: "),
        (["hint"], "exercises", "1 of 3: "),  # of 06
        (["exercise"], "workshop/06_same_order", find_exercise("01").title),
    ):
        result = call(["make", *words], cwd=root / folder)
        assert (result.stdout[: len(line)], result.stderr) == (line, "")
    for name, given in {"06_same_order": 1, "07_one_half": 2}.items():
        assert len((root / "workshop" / name / ".hints").read_text()) == given


def test_an_edited_stage_does_the_lab_no_harm_and_is_restored(copy):
    act, root = copy
    path = root / "04_ddp/mnist.py"
    original = path.read_text()
    edited = original.replace("sampler.set_epoch(epoch)", "pass")
    git = ["git", "-c", "user.name=n", "-c", "user.email=e"]
    for words in ["init", "-q"], ["add", "."], ["commit", "-qm", "first"]:
        subprocess.run([*git, *words], cwd=root, check=True)
    path.write_text(edited)
    subprocess.run([*git, "commit", "-qam", "an edit"], cwd=root, check=True)
    for number in "06", "07":
        exercise = find_exercise(number)
        assert act("exercise", f"E={number}").returncode == 0
        begun = root / "workshop" / exercise.name / "mnist.py"
        assert begun.read_text() == exercise.script("start")

    restored = act("restore", "S=4").stdout
    assert restored.startswith("your version is 04_ddp/mnist_edited.py now\n")
    assert path.read_text() == original
    assert path.with_name("mnist_edited.py").read_text() == edited
    assert act("restore", "S=ddp").stdout == "04_ddp/mnist.py is as it came\n"
    path.write_text("a second edit")
    assert "mnist_edited.py is there already" in act("restore", "S=4").stderr
    assert path.read_text() == "a second edit"


def test_without_git_an_edited_stage_is_named_in_a_line(copy):
    act, root = copy
    assert act("exercise", "E=06").returncode == 0
    (root / "04_ddp/mnist.py").write_text("edited\n")
    for words in ["exercise", "E=07"], ["restore", "S=4"]:
        error, _ = act(*words).stderr.splitlines()  # ours, and make's
        assert error.startswith("04_ddp/mnist.py was edited, and git has no copy")


def test_the_lab_knows_the_stages_of_today():
    known = (ROOT / "tools/lab/stages.txt").read_text()
    paths = [script(stage) for stage in EVERY.values()]
    blobs = call(["git", "hash-object", *paths]).stdout.split()
    rows = zip(EVERY.values(), blobs, strict=True)
    expected = "".join(f"{stage} {blob}\n" for stage, blob in rows)
    assert known == expected, "a stage has changed: 'make docs' tells the lab"
