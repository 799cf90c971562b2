"""Promise: a learner can begin, check, get hints, see a solution, and begin anew."""

import os
import re
import signal
import subprocess
import sys

import pytest

from conftest import ROOT, call
from tools.lab import checks, commands, exercise, handouts, judge, progress
from tools.lab.exercise import along_the_path, find_exercise, names
from tools.lab.path import PARTS, PATH
from tools.run import stages

HOW_MANY = len(names())


@pytest.fixture
def workshop(tmp_path, monkeypatch):
    """A workshop of its own, and a function that runs an action of the lab there."""
    environment = {**os.environ, "WORKSHOP": str(tmp_path / "workshop")}

    def act(action, *words, **variables):
        return call(["make", action, "WHO=Ada", *words], env=environment | variables)

    return tmp_path / "workshop", act


def test_the_way_of_a_learner(workshop):
    folder, act = workshop
    listed = act("exercises").stdout
    numbers = re.findall(r"(?m)^(\d\d) ", listed)
    assert numbers == [number for number, _, _ in PATH]
    assert "done" not in listed
    early = act("check", "E=08")
    assert early.returncode != 0
    assert early.stderr.startswith("exercise 08 has not begun: 'make exercise E=08'\n")

    begun = act("exercise", "E=08")
    assert begun.returncode == 0, begun.stderr
    assert "make try E=08" in begun.stdout
    assert "make check E=08" in begun.stdout
    assert act("exercises").stdout.endswith(
        f"\nNext: make check E=08\nAda: 0 of {HOW_MANY} solved, begun: 08\n"
    )
    script = folder / "08_local_loss" / "mnist.py"
    page = (script.parent / "README.md").read_text()
    assert "What you observe" in page
    assert "Hints" not in page

    wrong = act("check")  # of the one that was begun last
    assert wrong.returncode == 0  # no error of make's
    assert wrong.stderr == ""
    running, verdict, _, repeat = wrong.stdout.splitlines()
    assert running.startswith(f"Running {script}")
    assert verdict.startswith("Not yet. The loss of epoch 1 is given as")
    assert repeat.startswith("Repeat it: make try E=08 NPROC=2 ")

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
    assert "](" not in solved.stdout  # a link is its text and its address
    assert " (https://" in solved.stdout
    assert solved.stdout.endswith(
        f"\nAda: 1 of {HOW_MANY} solved (08)\nNext: make exercise E=01\n"
    )
    assert "done " in act("exercises").stdout


def test_a_reset_deletes_nothing_but_exercises(workshop):
    folder, act = workshop
    act("exercise", "E=08")
    mine = folder / "mine.txt"
    mine.touch()
    assert act("reset", "E=all").stdout == "exercise 08 is new again\n"
    assert list(folder.iterdir()) == [mine]


def test_the_path_names_each_exercise_once_after_those_it_builds_on():
    assert sorted(number for number, _, _ in PATH) == sorted(
        exercise.number_of(name) for name in names()
    )
    before = set()
    parts = []
    for one in along_the_path():
        assert before.issuperset(one.after), one.number
        before.add(one.number)
        parts.append(one.part)
    assert parts == sorted(parts)
    assert set(parts) == set(PARTS)


def test_what_does_not_parse_is_answered_without_pytorch(workshop):
    folder, act = workshop
    act("exercise", "E=08")
    script = folder / "08_local_loss" / "mnist.py"
    text = script.read_text()
    said = {
        "def main(:\n": "line 1: invalid syntax\n    def main(:\n",
        "a = '\0'\n": "is not a Python script: ",
    }
    for source, expected in said.items():
        script.write_text(source)
        blocked = {"PYTHONPATH": str(folder)}
        (folder / "torch.py").write_text("raise SystemExit('torch is imported')")
        result = act("check", "E=08", **blocked)
        assert result.stdout.startswith("Not yet. "), result.stdout
        assert expected in result.stdout
        assert result.stderr == ""
    script.write_bytes(text.encode() + b"# caf\xe9\n")
    line = text.count("\n") + 1
    assert f"Line {line} of {script} is not UTF-8" in act("check", "E=08").stdout


def test_watch_checks_what_is_saved_until_it_is_right(tmp_path, monkeypatch):
    monkeypatch.setenv("WORKSHOP", str(tmp_path))
    begun = find_exercise("08")
    commands.begin(begun)
    script = tmp_path / begun.name / "mnist.py"
    script.write_text("def main(:\n")  # told without a run
    words = [sys.executable, "-m", "tools.lab.commands", "watch", "08"]
    options = {"cwd": ROOT, "text": True, "stdout": subprocess.PIPE}
    options["stderr"] = subprocess.PIPE
    with subprocess.Popen(words, **options) as watching:
        first = read_until(watching.stdout, "Waiting until you save")
        assert "Not yet. " in first
        script.write_text("def main(]:\n")
        assert "line 1: " in read_until(watching.stdout, "Waiting until you save")
        watching.send_signal(signal.SIGINT)
        rest, errors = watching.communicate(timeout=120)
    assert (rest, errors, watching.returncode) == ("", "stopped\n", 1)

    monkeypatch.setattr(commands, "check", lambda exercise: 0)
    assert commands.watch(begun) == 0  # solved: it ends


def read_until(stream, text):
    """Return the lines of a stream up to the one that has a text."""
    found = ""
    for line in stream:
        found += line
        if text in line:
            return found
    raise AssertionError(f"the stream ended without {text!r}: {found}")


ROOM = """\
12:01 Ada: 3 of 31 solved (01 02 05), begun: 06
Bob: 0 of 31 solved
how do I begin?
Ada: 4 of 31 solved (01 02 05 06)
Cy: 1 of 31 solved (01), begun: 02 05
12:09 Ada: 4 of 31 solved (01 02 05 06)
"""


def test_a_room_is_a_table(tmp_path, capsys):
    path = tmp_path / "lines.txt"
    path.write_text(ROOM)
    progress.show_room(path)
    table = capsys.readouterr().out
    people, _, by_exercise = table.partition("\n\n")
    rows = [line.split() for line in people.splitlines()]
    assert rows == [
        ["who", "solved", "begun"],
        ["Ada", "4"],
        ["Cy", "1", "02", "05"],
        ["Bob", "0"],
    ]
    assert by_exercise.startswith("Of 3 learners ")
    assert "\n01   2 solved   0 begun  The batch" in by_exercise
    assert "\n02   1 solved   1 begun" in by_exercise
    path.write_text("nobody\n")
    with pytest.raises(SystemExit, match="^no line says "):
        progress.show_room(path)
    with pytest.raises(SystemExit, match="^cannot read .*no.txt: "):
        progress.show_room(tmp_path / "no.txt")


def test_handouts_have_every_page_without_its_hints(tmp_path, monkeypatch):
    monkeypatch.setattr(handouts, "ROOT", tmp_path)
    handouts.main()
    sheets = (tmp_path / "runs/handouts.html").read_text()
    assert sheets.count('<section class="sheet">') == HOW_MANY
    assert sheets.count("Your task</h2>") == HOW_MANY
    assert "Hint" not in sheets
    assert "Where people met it" not in sheets
    told = (tmp_path / "runs/afterwards.html").read_text()
    assert told.count("<section>") == HOW_MANY


def test_a_check_that_fails_takes_done_back(tmp_path, monkeypatch):
    begun = find_exercise("08")
    monkeypatch.setattr(progress, "workshop", lambda _: tmp_path)
    (tmp_path / "mnist.py").write_text("learner = 1\n")
    monkeypatch.setattr(judge, "judge", lambda exercise, text: None)
    commands.check(begun)
    assert (tmp_path / ".done").exists()

    def fail(exercise, text):
        assert text == "learner = 1\n"
        raise checks.Wrong("It is wrong.")

    monkeypatch.setattr(judge, "judge", fail)
    assert commands.check(begun) == commands.NOT_YET
    assert not (tmp_path / ".done").exists()


def test_without_a_number_the_exercise_begun_last_is_meant(tmp_path, monkeypatch):
    monkeypatch.setenv("WORKSHOP", str(tmp_path))
    for when, number in enumerate(["08", "31", "05", "06"]):
        begun = find_exercise(number)
        commands.begin(begun)
        os.utime(tmp_path / begun.name / "README.md", (when, when))
    assert progress.last_begun().number == "06"


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
