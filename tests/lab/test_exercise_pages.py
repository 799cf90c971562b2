"""Promise: exercise pages match the path and quote losses from data/sample."""

import re

import pytest

from conftest import ROOT
from onecurve import api
from tools.lab.exercise import PARTS, along_the_path, find_exercise
from tools.pages.switches import read_outcomes
from tools.run.stages import CPU_PROCESSES, EVERY

HALF = "(hidden).to(DEVICE)", "(hidden.to(SECOND)).to(DEVICE)"  # one of 28's two fixes
QUOTED = re.compile(
    r"losses\s+(?:of 90\s+steps\s+)?(?:are|become)\s+(\S+),\s+(\S+)\s+and\s+(\S+\d)"
)
OTHERS = "28", "30", "27", "25"  # exercises whose losses differ from their stages'


def test_each_page_is_on_the_path_once_after_those_it_builds_on():
    pages = sorted(path.stem for path in (ROOT / "exercises").glob("[0-9]*.md"))
    path = along_the_path()
    assert sorted(one.name for one in path) == pages
    before = set()
    for one in path:
        head = f"# {one.title}\n\nStage {one.stage}, {one.minutes} minutes.\n"
        assert one.text.startswith(head)
        assert one.stage in EVERY.values()
        assert before.issuperset(one.after), one.number
        before.add(one.number)
    parts = [one.part for one in path]
    assert parts == sorted(parts)
    assert set(parts) == set(PARTS)


def losses(text, stage, folder):
    """Return the losses that a script prints, formatted as on a page."""
    path = folder / "mnist.py"
    path.write_text(text)
    words = [path, "--out", folder / "out"]
    result = api.run(words, CPU_PROCESSES.get(stage, 0))
    found = re.findall(r"loss ([\d.]+)", result.stdout)
    return tuple(f"{float(loss):.4f}" for loss in found)


def quoted():
    """Return {exercise number: losses its page quotes}, except the stages' losses."""
    right = read_outcomes()["right"]
    found = {}
    for exercise in along_the_path():
        curve, *_ = right[exercise.stage].values()
        of_stage = tuple(f"{row[0]:.4f}" for row in curve)
        told = [one for one in QUOTED.findall(exercise.text) if one != of_stage]
        if told:
            found[exercise.number] = told
    return found


def right_scripts(number):
    """Return the correct scripts whose losses a page quotes, in the page's order."""
    exercise = find_exercise(number)
    mended = [exercise.script("start").replace(*HALF)] if number == "28" else []
    return [*mended, exercise.script("solution")]


def test_only_some_pages_quote_losses_that_are_not_those_of_the_stages():
    assert sorted(quoted()) == sorted(OTHERS)


@pytest.mark.slow
@pytest.mark.parametrize("number", OTHERS)
def test_a_page_quotes_the_losses_of_a_right_script(number, tmp_path):
    expected = []
    for text in right_scripts(number):
        expected.append(losses(text, find_exercise(number).stage, tmp_path))
    assert quoted()[number] == expected


def test_a_page_of_the_second_curve_quotes_numbers_that_were_recorded():
    outcomes = read_outcomes()
    pages = [one for one in along_the_path() if one.part == 5]
    assert len(pages) == 6
    for exercise in pages:
        curves = list(outcomes["right"][exercise.stage].values())
        for key, found in outcomes["switches"].items():
            if key.startswith(exercise.stage):
                curves += [outcome["curve"] for outcome in found.values()]
        rows = [row for curve in curves for row in curve]
        known = {f"{row[0]:.4f}" for row in rows} | {f"{row[1]:,}" for row in rows}
        told = re.findall(r"\b1?\d,\d{3}\b|\b\d\.\d{4}\b", exercise.text)
        assert {*told} <= known | {"16,320"}, exercise.name
