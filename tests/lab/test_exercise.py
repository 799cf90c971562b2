"""Promise: a check rejects the start and wrong fixes, but accepts correct ones."""

import os
import re
import sys
import traceback
from copy import copy
from unittest import mock

import psutil
import pytest

from conftest import ROOT, call
from tools.lab import judge as judging
from tools.lab.exercise import along_the_path
from tools.lab.record import Wrong

EXERCISES = sorted(along_the_path(), key=lambda one: one.number)
HANGING = 4  # seconds until a script that should hang is stopped
BY_NAME = {one.name: one for one in EXERCISES}
# An exercise's tests share a worker so that they share runs.
EACH = [pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in BY_NAME]


def verdict(exercise, text, expected=""):
    """Return a check's verdict on a script, '' if it is right.

    Also returns the line of check.py that raised it, None if other code did.
    """
    hangs = "hangs" in expected or expected.startswith("The run")
    limit = HANGING if hangs else judging.PATIENCE
    try:
        with mock.patch.object(judging, "LIMIT", limit):
            judging.judge(judging.Runs(exercise, text))
    except Wrong as why:
        frame = traceback.extract_tb(why.__traceback__)[-1]
        own = frame.filename.endswith("check.py")
        return str(why), frame.lineno if own else None
    return "", None


def assert_judged(exercise, answer):
    """Assert that a check's verdict on an answer is right; return the line."""
    says = answer.fields.get("says", "")
    said, line = verdict(exercise, exercise.answered(answer), says)
    if answer.name.startswith("right"):
        assert said == "", answer.name
    else:
        assert re.search(says, said), f"{answer.name}: {said!r}"
    return line


def assert_start_is_rejected(exercise):
    """Assert that a check says what is wrong with the start; return the line."""
    said, line = verdict(exercise, exercise.script("start"), exercise.says)
    assert exercise.says in said
    return line


@pytest.mark.parametrize("name", EACH)
def test_start_is_rejected_and_solution_accepted(name):
    """Also judge the first wrong and the first right answer, with a single run."""
    exercise = BY_NAME[name]
    assert_start_is_rejected(exercise)
    handed_in = exercise.answers()
    for wrong in [one for one in handed_in if one.name.startswith("wrong")][:1]:
        assert_judged(exercise, wrong)
    short = copy(exercise)
    short.runs = exercise.runs[:1]
    assert verdict(short, exercise.script("solution")) == ("", None)
    right = next(one for one in handed_in if one.name.startswith("right"))
    assert_judged(short, right)
    family = psutil.Process().children(recursive=True)
    left = [p for p in family if p.ppid() != os.getpid() and p.status() != "zombie"]
    assert left == []


@pytest.mark.slow
@pytest.mark.parametrize("name", EACH)
def test_every_answer_is_judged_by_all_runs(name):
    exercise = BY_NAME[name]
    assert verdict(exercise, exercise.script("solution")) == ("", None)
    lines = {assert_start_is_rejected(exercise), None}  # of check.py
    for answer in exercise.answers():
        lines.add(assert_judged(exercise, answer))
    if exercise.load_check():
        own = (exercise.folder / "check.py").read_text().splitlines()
        raises = [n for n, line in enumerate(own, start=1) if "  raise Wrong" in line]
        assert set(raises) <= lines, "no answer reaches these lines"


def test_the_scripts_are_clean(tmp_path):
    for exercise in EXERCISES:
        for name in "start", "solution":
            path = tmp_path / f"{exercise.number}_{name}.py"
            path.write_text(exercise.script(name))
    ruff = [sys.executable, "-m", "ruff"]
    options = ["--config", ROOT / "pyproject.toml", tmp_path]
    result = call([*ruff, "format", "--check", *options])
    assert result.stdout == f"{2 * len(EXERCISES)} files already formatted\n"
    result = call([*ruff, "check", "--ignore", "F841", *options])  # 10 has unused ones
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize("exercise", EXERCISES, ids=BY_NAME)
def test_the_page_of_an_exercise(exercise):
    titles = re.findall(r"^## (.*)$", exercise.text, re.MULTILINE)
    assert titles == ["What you observe", "Your task", "Hints", "Where people met it"]
    assert len(exercise.hints()) == 3
    printed = exercise.without_hints() + "\n".join(exercise.hints())
    prose = re.sub(r"(?s)```.*?```|\S*://\S*", "", printed)
    assert max(map(len, prose.splitlines())) < 80
    assert "](https://" in exercise.chapter("Where people met it")
