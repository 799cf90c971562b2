"""The part of a long list that a run of the tests makes, and what is said of it."""

import shutil
import sys

import pytest

import parts
from conftest import ENV, call
from parts import PARTS, part

TWENTY = list(range(20))


@pytest.fixture(autouse=True)
def unchanged(monkeypatch):
    """Keep this run's own part and summary."""
    monkeypatch.delenv("ALL", raising=False)
    kept = dict(PARTS)
    yield
    PARTS.clear()
    PARTS.update(kept)


def test_eight_numbers_in_a_row_run_each_case_once(monkeypatch):
    run = []
    for sample in range(413, 421):
        monkeypatch.setenv("SAMPLE", str(sample))
        chosen = part("cases", TWENTY)
        assert PARTS["cases"] == (len(chosen), 20)
        assert len(chosen) in (2, 3)
        run += chosen
        assert len(part("a short list", "abc")) == 1
    assert sorted(run) == TWENTY


@pytest.mark.parametrize(("count", "run"), [(4, 4), (5, 2), (20, 5)])
def test_of_many_cases_that_have_changed_four_numbers_in_a_row_run_each(
    monkeypatch, count, run
):
    """Of few, each number runs all of them, beside the part."""
    monkeypatch.setattr(parts, "read_passed", dict)
    cases = list(range(count))
    seen = set()
    for sample in range(4):
        monkeypatch.setenv("SAMPLE", str(sample))
        chosen = part("cases", cases, 100, lambda case: [str(case)])
        assert len(set(chosen) - {sample}) <= run
        seen |= set(chosen)
    assert seen == set(cases)


FEW = """
import pytest
from parts import part
@pytest.mark.parametrize("case", part("cases", range(20), every=4))
def test_case(case):
    pass
"""
KEYED = """
import pathlib
import pytest
from parts import part
def sources(case):
    return [pathlib.Path(__file__).with_name(case)]
@pytest.mark.parametrize("case", part("keyed", ["a", "b", "c", "d"], 4, sources))
def test_case(case):
    assert pathlib.Path(__file__).with_name(case).read_text() != "wrong"
"""


def run_tests(folder, text, *flags, paths=("tests",), **given):
    """Run a file of tests in a folder, with a parts.py of its own; return the result.

    `given` are ALL and SAMPLE.
    """
    (folder / "pytest.ini").write_text("[pytest]\ntestpaths = tests\n")
    (folder / "tests").mkdir(exist_ok=True)
    shutil.copy(parts.__file__, folder / "tests")
    (folder / "tests" / "test_few.py").write_text(text)
    own = "ALL", "SAMPLE", "NOTHING_NAMED"
    env = {name: ENV[name] for name in ENV if name not in own}
    env |= {"PYTHONPATH": folder / "tests", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    words = [sys.executable, "-m", "pytest", "-p", "parts", "-p", "no:cacheprovider"]
    done = call([*words, *flags, *paths], env=env | given, cwd=folder)
    done.said = done.stdout + done.stderr
    return done


@pytest.mark.parametrize(
    ("given", "flags", "told"),
    [
        (
            {},
            ["-p", "xdist", "-n", 2],
            ["cases: 5 of 20 (ALL=1 runs all; ", "5 passed"],
        ),
        ({"SAMPLE": "6"}, [], ["cases: 5 of 20", "SAMPLE=6 these again"]),
        ({"ALL": "1"}, [], ["cases: all 20", "20 passed"]),
    ],
)
def test_workers_run_the_same_part_and_the_summary_tells_which(
    tmp_path, given, flags, told
):
    done = run_tests(tmp_path, FEW, *flags, **given)
    assert done.returncode == 0, done.said
    for text in told:
        assert done.said.count(text) == 1, done.said


def test_what_has_changed_since_all_passed_runs_beside_the_part(tmp_path):
    """With SAMPLE=0, the part is the first of four."""

    def told(*flags, **given):
        return run_tests(tmp_path, KEYED, *flags, **given).said

    (tmp_path / "tests").mkdir()
    for name in "abcd":
        (tmp_path / "tests" / name).write_text("right")
    assert "keyed: all 4" in told("--collect-only")  # nothing is known to have passed
    assert "keyed: all 4" in told("-k", "a", ALL="1")  # nor after this
    (tmp_path / "tests" / "b").write_text("wrong")
    assert "1 failed, 3 passed" in told(ALL="1")  # nor this
    (tmp_path / "tests" / "b").write_text("right")
    assert "4 passed" in told("-p", "xdist", "-n", 2, SAMPLE="0")
    assert "keyed: 1 of 4" in told(SAMPLE="0")
    assert "keyed: 1 of 4" in told(SAMPLE="0")  # which was noted by nobody
    (tmp_path / "tests" / "c").write_text("wrong")
    changed = told(SAMPLE="0")
    assert "keyed: 2 of 4" in changed
    assert "1 failed, 1 passed" in changed


def test_of_the_tests_of_unchanged_scripts_a_quarter_runs(tmp_path):
    """In a run of all tests, and not where files are named."""

    def told(*flags, paths=(), **given):
        return run_tests(tmp_path, FEW, *flags, paths=paths, **given).said

    for path in "tests/stages", "01_cpu":
        (tmp_path / path).mkdir(parents=True)
    (tmp_path / "tests/conftest.py").touch()
    script = tmp_path / "01_cpu/mnist.py"
    script.write_text("as it was")
    shutil.copy(parts.__file__, tmp_path / "tests")
    tests = FEW.replace('part("cases", range(20), every=4)', "range(20)")
    (tmp_path / "tests/stages/test_one.py").write_text(tests)
    named = told(paths=["tests/stages"])
    assert "20 passed" in named and "in stages" not in named
    assert "tests in stages: all 20" in told()  # nothing is known to have passed
    xdist = "-p", "xdist", "-n", 2
    for flags in (), xdist:
        assert "tests in stages: 5 of 20 (ALL=1" in told(*flags, SAMPLE="5")
    assert "tests in stages: all 20" in told(ALL="1")
    script.write_text("changed")
    assert "tests in stages: all 20" in told()
