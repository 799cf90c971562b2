"""Promise: of a long list a run makes a part, and what has changed, and says which."""

import shutil
import sys

import pytest

import parts
from conftest import ENV, call

TWENTY = list(range(20))
TESTS = """
import pathlib
import pytest
from parts import part
HERE = pathlib.Path(__file__).parent
@pytest.mark.parametrize("case", part("cases", "abcde", 5, lambda case: [HERE / case]))
def test_case(case):
    assert (HERE / case).read_text() == "right"
"""
OF_A_STAGE = """
import pytest
@pytest.mark.parametrize("case", range(20))
def test_stage(case):
    pass
"""


@pytest.fixture
def choose(monkeypatch):
    """A function that returns a part of a list; this run's own summary is kept."""
    monkeypatch.delenv("ALL", raising=False)
    monkeypatch.setattr(parts, "PARTS", {})
    monkeypatch.setattr(parts, "read_passed", dict)

    def chosen(sample, *words):
        monkeypatch.setenv("SAMPLE", str(sample))
        return parts.part("cases", *words)

    return chosen


def test_eight_numbers_in_a_row_run_each_case_once(choose):
    run = []
    for sample in range(413, 421):
        some = choose(sample, TWENTY)
        assert len(some) in (2, 3)
        run += some
        assert len(choose(sample, "abc")) == 1
    assert sorted(run) == TWENTY


@pytest.mark.parametrize(("count", "run"), [(4, 4), (5, 2), (20, 5)])
def test_of_many_that_have_changed_four_numbers_in_a_row_run_each(choose, count, run):
    """Of few, each number runs all of them, beside the part."""
    seen = set()
    for sample in range(4):
        some = choose(sample, range(count), 100, lambda case: [str(case)])
        assert len(set(some) - {sample}) <= run
        seen |= set(some)
    assert seen == set(range(count))


@pytest.fixture
def told(tmp_path):
    """A function that runs the tests of a small repository; returns what they say.

    `given` are ALL and SAMPLE.
    """
    tests = tmp_path / "tests"
    for path in "stages", "../01_cpu":
        (tests / path).mkdir(parents=True)
    for name in "abcde":
        (tests / name).write_text("right")
    for name, text in [("test_cases", TESTS), ("stages/test_stage", OF_A_STAGE)]:
        (tests / f"{name}.py").write_text(text)
    for empty in tests / "conftest.py", tmp_path / "01_cpu/mnist.py":
        empty.touch()
    (tmp_path / "pytest.ini").write_text("[pytest]\ntestpaths = tests\n")
    shutil.copy(parts.__file__, tests)
    own = "ALL", "SAMPLE", "NOTHING_NAMED"
    env = {name: ENV[name] for name in ENV if name not in own}
    env |= {"PYTHONPATH": tests, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    words = [sys.executable, "-m", "pytest", "-p", "parts", "-p", "no:cacheprovider"]

    def run(*flags, **given):
        done = call([*words, *flags], env=env | given, cwd=tmp_path)
        return done.stdout + done.stderr

    return run


def test_a_run_of_all_tests_makes_a_part_and_what_has_changed(told, tmp_path):
    workers = "-p", "xdist", "-n", 2
    case = tmp_path / "tests/a"

    def assert_told(texts, *flags, **given):
        said = told(*flags, **given)
        for text in texts:
            assert said.count(text) == 1, said

    # Nothing is known to have passed, nor by a run that looks, fails or is limited.
    told("--collect-only", ALL="1")
    told("-k", "test", ALL="1")
    case.write_text("wrong")
    assert_told(["1 failed, 24 passed"], ALL="1")
    case.write_text("right")
    for _ in range(2):  # nor by a part
        assert_told(["cases: 2 of 5"], SAMPLE="0")
    assert_told(["cases: all 5\n", "25 passed"], *workers, ALL="1")
    # Now all is: with SAMPLE=0 the first of five cases runs, and 5 tests of 20.
    again = "(ALL=1 runs all; SAMPLE=0 these again)\n"
    some = f"cases: 1 of 5 {again}", f"tests in stages: 5 of 20 {again}", "6 passed"
    assert_told(some, SAMPLE="0")
    assert_told(some, *workers, SAMPLE="0")
    assert_told(["tests in stages: 5 of 20 (ALL=1", "6 passed"], *workers)
    assert_told(["20 passed"], "tests/stages")  # who names a file gets all of it
    case.write_text("wrong")
    assert_told(["cases: 2 of 5", "1 failed, 6 passed"], SAMPLE="1")
    (tmp_path / "01_cpu/mnist.py").write_text("changed")
    assert_told(["tests in stages: all 20", "1 failed, 21 passed"], SAMPLE="1")
