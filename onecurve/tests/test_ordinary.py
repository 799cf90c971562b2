"""Promise: ordinary code in correct scripts is neither an error nor worth a look."""

from pathlib import Path

import pytest
from cases import read_cases, script_of

from inspecting import inspect

ORDINARY = read_cases(Path(__file__).with_name("ordinary.diff"))


def test_there_are_some():
    assert len(ORDINARY) >= 15


@pytest.mark.slow
@pytest.mark.parametrize("name", ORDINARY)
def test_an_ordinary_script_has_no_finding(name, tmp_path):
    edits, verdict = ORDINARY[name]
    path = tmp_path / "train.py"
    path.write_text(script_of(edits))
    report = inspect(path, folder=tmp_path)
    assert report.findings == [], report.text
    assert report.status == 0
    assert [report.verdict.removeprefix("no errors found in train.py")] == verdict
