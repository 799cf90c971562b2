"""Promise: every bug in mutants.diff still fits its file and names a test file.

`make mutants` checks that the tests catch it.
"""

from mutants import read_mutants

from conftest import ROOT


def test_every_bug_can_be_put_into_its_file():
    mutants = read_mutants()
    assert len(mutants) > 50
    for mutant in mutants:
        tests = ROOT / mutant.project / "tests"
        assert (tests / mutant.tests.split()[0]).is_file(), mutant.bug
        text = (ROOT / mutant.file).read_text()
        assert mutant.edit.apply(text) != text
