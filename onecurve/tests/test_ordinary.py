"""Promise: ordinary code in correct scripts is neither an error nor worth a look."""

import pytest
from cases import ORDINARY, read_cases, script_of

from inspecting import inspect

CASES = read_cases(ORDINARY)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_an_ordinary_script_has_no_finding(name, tmp_path):
    edits, verdict = CASES[name]
    path = tmp_path / "train.py"
    path.write_text(script_of(edits))
    report = inspect(path, folder=tmp_path)
    assert report.findings == [], report.text
    assert report.status == 0
    assert [report.verdict.removeprefix("no errors found in train.py")] == verdict
