"""Promise: a check fails the broken script and wrong repairs, and passes right ones."""

import os
import re
import sys
import traceback
from unittest import mock

import psutil
import pytest

from conftest import ROOT, call
from parts import part
from tools.lab import answers
from tools.lab import judge as judging
from tools.lab.exercise import along_the_path
from tools.lab.record import Wrong
from tools.run.stages import script

EXERCISES = sorted(along_the_path(), key=lambda one: one.number)
HANGING = 4  # seconds, after which a script that has to hang is ended
PATIENT = 120  # seconds, for those that have to end: the machine may be busy
BY_NAME = {one.name: one for one in EXERCISES}


def sources(name):
    """Return what the verdicts of an exercise come from."""
    stage = BY_NAME[name].stage
    rooms = [ROOT / "onecurve/src", *LAB]
    return [BY_NAME[name].folder, script(stage), *rooms]


LAB = [ROOT / "tools/lab/fake_cuda", *sorted((ROOT / "tools/lab").glob("*.py"))]
ANSWERED = [  # those of an exercise share a worker, and runs
    pytest.param(name, marks=pytest.mark.xdist_group(name))
    for name in part("exercises with their answers", BY_NAME, 8, sources)
]


def verdict(exercise, text, expected=""):
    """Return what a check says of the text of a script, '' where it is right.

    It also returns the line of check.py that says so; None where something else does.
    """
    hangs = "hangs" in expected or expected.startswith("The run")
    try:
        with mock.patch.object(judging, "LIMIT", HANGING if hangs else PATIENT):
            judging.judge(judging.Runs(exercise, text))
    except Wrong as why:
        frame = traceback.extract_tb(why.__traceback__)[-1]
        own = frame.filename.endswith("check.py")
        return str(why), frame.lineno if own else None
    return "", None


@pytest.mark.parametrize("name", ANSWERED)
def test_answers(name):
    exercise = BY_NAME[name]
    # the solution first: others are compared with its runs, which are kept
    assert verdict(exercise, exercise.script("solution")) == ("", None)
    said, line = verdict(exercise, exercise.script("start"), exercise.says)
    assert exercise.says in said
    lines = {line, None}  # of check.py
    handed_in = answers.read(exercise)
    for answer in handed_in:
        said, line = verdict(exercise, answer.script(exercise), answer.says or "")
        if answer.verdict == "right":
            assert said == "", answer.where
        else:
            assert re.search(answer.says, said), f"{answer.where}: {said!r}"
            lines.add(line)
    assert "right" in [answer.verdict for answer in handed_in]
    if not exercise.runs:
        own = (exercise.folder / "check.py").read_text().splitlines()
        raises = [n for n, line in enumerate(own, start=1) if "  raise Wrong" in line]
        assert set(raises) <= lines, "no answer reaches these lines"
    family = psutil.Process().children(recursive=True)
    left = [p for p in family if p.ppid() != os.getpid() and p.status() != "zombie"]
    assert left == []


def test_the_scripts_are_clean(tmp_path):
    for exercise in EXERCISES:
        for name in "start", "solution":
            path = tmp_path / f"{exercise.number}_{name}.py"
            path.write_text(exercise.script(name))
    ruff = [sys.executable, "-m", "ruff"]
    options = ["--config", ROOT / "pyproject.toml", tmp_path]
    result = call([*ruff, "format", "--check", *options])
    assert result.stdout == f"{2 * len(EXERCISES)} files already formatted\n"
    result = call([*ruff, "check", "--ignore", "F841", *options])  # 10: not used
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
