"""Promise: every promise in README.md has a test that `make test` runs.

promises.csv pairs phrases from the README with tests.
"""

import ast
import csv
import re
from pathlib import Path

import pytest

from conftest import ROOT

README = " ".join((ROOT / "README.md").read_text().split())
with open(Path(__file__).with_name("promises.csv"), newline="") as file:
    ROWS = list(csv.DictReader(file))
STAGE = re.compile(r"\| (`make \w+`) \|")  # in the table of stages
SLOW = "pytest.mark.slow"


def fast_tests(path):
    """Return the names of a file's tests that are not slow."""
    module = ast.parse((ROOT / path).read_text()).body
    if f"pytestmark = {SLOW}" in map(ast.unparse, module):
        return []
    found = []
    for one in module:
        marks = map(ast.unparse, getattr(one, "decorator_list", []))
        if isinstance(one, ast.FunctionDef) and SLOW not in marks:
            found.append(one.name)
    return found


@pytest.mark.parametrize("row", ROWS, ids=[row["promise"] for row in ROWS])
def test_a_phrase_of_the_readme_has_a_test_that_is_not_slow(row):
    assert row["promise"] in README
    path, _, name = row["test"].partition("::")
    assert name in fast_tests(path)


def test_every_stage_of_the_table_is_covered():
    stages = set(STAGE.findall(README))
    assert len(stages) == 6
    assert stages <= {row["promise"] for row in ROWS}
