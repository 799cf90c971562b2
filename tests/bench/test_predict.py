"""Promise: predictions are the formulas, and the formulas count messages."""

import sys

import pytest

from conftest import ROOT, call
from tools.bench import predict

PAGE = (ROOT / "SCALING.md").read_text()


@pytest.mark.parametrize("number", [2, 3, 4, 8])
def test_a_ring_takes_what_its_messages_take(number):
    """Counted message by message: N ranks, N parts, each once round and once more."""
    seconds = 0.0
    parts = [{rank} for rank in range(number)]  # whose share of part 0 a rank has
    for _ in range(2 * (number - 1)):
        seconds += 1e-3 + 1e8 / number / 1e9
        parts = [parts[rank] | parts[rank - 1] for rank in range(number)]
    assert all(part == set(range(number)) for part in parts)
    assert predict.ring(1e8, number, 1e9, 1e-3) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("name", "value", "worst", "best"),
    [
        ("NETWORK", 10e9, "45%", "64%"),
        ("NETWORK", 100e9, "88%", "100%"),
        ("STEP", 7.2, "98%", "100%"),
    ],
)
def test_other_numbers_predict_what_the_page_says(
    name, value, worst, best, monkeypatch
):
    monkeypatch.setattr(predict, name, value)
    last = predict.prediction()[-1]
    assert (last[4], last[6]) == (worst, best)
    assert all(f" {share}" in PAGE for share in (worst, best))


def test_an_overlap_hides_what_the_backward_pass_has_time_for():
    *_, worst, best = zip(*[predict.steps(nodes, 8) for nodes in (1, 2)], strict=True)
    assert best[0] == predict.STEP
    assert worst[1] - best[1] == pytest.approx(predict.BACKWARD * predict.STEP)
    for times, percent in (worst, 9), (best, 42):
        one, two = times
        assert f"{1 - two / 2 / one:.0%}" == f"{percent}%"
        assert f" {percent}%" in PAGE.partition("<!--")[0]


def test_the_command_of_the_page_prints_its_table():
    assert "\n.venv/bin/python -m tools.bench.predict\n" in PAGE
    result = call([sys.executable, "-m", "tools.bench.predict"])
    assert result.stdout.splitlines()[-1].endswith(" 64%"), result.stderr
