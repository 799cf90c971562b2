"""The part of a long list that a run of the tests makes, and what is said of it."""

import sys

import pytest

from conftest import ENV, ROOT, call
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
    assert sorted(run) == TWENTY


@pytest.mark.parametrize("sample", ["0", "5", "7"])
def test_of_a_short_list_at_least_one_case_is_run(monkeypatch, sample):
    monkeypatch.setenv("SAMPLE", sample)
    assert len(part("cases", "abc")) == 1


FEW = """
import pytest
from parts import part
@pytest.mark.parametrize("case", part("cases", range(20), every=4))
def test_case(case):
    pass
"""


@pytest.mark.parametrize(
    ("given", "workers", "status", "told"),
    [
        ({}, 2, 0, ["cases: 5 of 20 (ALL=1 runs all; SAMPLE=", "5 passed"]),
        (
            {"SAMPLE": "6"},
            0,
            0,
            ["cases: 5 of 20", "SAMPLE=6 these again"],
        ),
        ({"ALL": "1"}, 0, 0, ["cases: all 20", "20 passed"]),
        ({"ALL": "0"}, 0, 4, ["ERROR: ALL=0: ALL=1 runs all cases, without it a part"]),
        ({"SAMPLE": "x"}, 0, 4, ["ERROR: SAMPLE=x: take the number in a summary"]),
    ],
)
def test_workers_run_the_same_part_and_the_summary_tells_which(
    tmp_path, given, workers, status, told
):
    (tmp_path / "test_few.py").write_text(FEW)
    env = {name: ENV[name] for name in ENV if name not in ("ALL", "SAMPLE")}
    env |= {
        "PYTHONPATH": ROOT / "tests",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        **given,
    }
    words = [sys.executable, "-m", "pytest", "-p", "parts", "-p", "no:cacheprovider"]
    words += ["-p", "xdist", "-n", workers, tmp_path]
    done = call(words, env=env, cwd=tmp_path)
    said = done.stdout + done.stderr
    assert done.returncode == status, said
    for text in told:
        assert said.count(text) == 1, said
