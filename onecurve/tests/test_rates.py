"""Promise: the judge says of the cases what was graded, and the page says how much.

The page's table is a generated part, compared in tests/pages/test_blocks.py.
"""

import json

import pytest
from conftest import ROOT
from parts import part
from rate import found_in, report_on
from rates import GRADES, SETS, TODAY, at_its_line, graded
from read_keys import CASES, read

FIRST = graded("graded.json")
# what is said of these today is not noted
NEW = graded("graded_new.json")
ALL = {}
for file in SETS:
    ALL |= graded(file)
GRADED = {case: facts for case, facts in ALL.items() if case not in NEW}
LATER = sorted(ALL.keys() - FIRST.keys())
LATER.remove("distill")  # its average has other buffers on each rank, as was found
SCRIPTS = {}
for case in sorted(GRADED):
    SCRIPTS[f"{case}: right"] = (CASES / case / "train.py").read_text()
    for version in read(case):
        SCRIPTS[f"{case}: {version.mistake}"] = version.script()


def noted(name):
    """Return what is noted of a script by the rules of today, a dict."""
    case, _, mistake = name.partition(": ")
    return GRADED[case][mistake].get(TODAY, GRADED[case][mistake])


def sources(name):
    return [SCRIPTS[name], json.dumps(noted(name)), ROOT / "onecurve"]


def test_each_version_of_a_case_is_graded():
    for case, facts in ALL.items():
        mistakes = [version.mistake for version in read(case)]
        assert list(facts) == ["right", *mistakes]
        assert {facts[mistake]["grade"] for mistake in mistakes} <= set(GRADES)
        again = [facts[mistake][TODAY] for mistake in facts if TODAY in facts[mistake]]
        assert {one["grade"] for one in again} <= {*GRADES, "false error"}
        assert len(again) in (0, len(facts))


def test_all_cases_are_graded_in_one_of_the_files():
    names = [*GRADED, *NEW]
    assert sorted(names) == sorted(path.name for path in CASES.iterdir())


def test_a_finding_is_at_a_line_of_the_key_or_is_not():
    version = read("clip")[4]
    script = version.script().splitlines()
    at = [number for number, line in enumerate(script, 1) if "nearest = (image" in line]
    assert at_its_line(version, ["SLOW x train.py:1", f"ERROR y train.py:{at[0]}"])
    assert not at_its_line(version, ["ERROR y train.py:1", "LOOK z"])


SOME = part("cases of the judge", SCRIPTS, 62, sources, changed_every=8)


@pytest.mark.parametrize("name", SOME)
def test_the_judge_says_what_was_graded(name):
    report = report_on(SCRIPTS[name])
    assert found_in(report) == noted(name)["found"], report


@pytest.mark.parametrize("name", part("right scripts of later cases", LATER, 5))
def test_a_right_script_of_the_later_cases_has_no_error(name):
    report = report_on((CASES / name / "train.py").read_text())
    assert report.endswith("exit status 0\n"), report


def test_no_right_script_of_the_first_six_has_an_error():
    found = [line for facts in FIRST.values() for line in facts["right"]["found"]]
    assert [line for line in found if line.startswith("ERROR")] == []
