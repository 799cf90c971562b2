"""Promise: predictions are the formulas, and the formulas count messages."""

import pytest

from conftest import ROOT, call
from tools.bench import predict


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


@pytest.mark.parametrize(("words", "percent"), [("", 45), ("MB=102 NETWORK=100", 88)])
def test_make_predicts_what_the_page_says(words, percent):
    words = f"make predict NODES=4 GPUS_PER_NODE=8 STEP=0.1 {words}".strip()
    page = (ROOT / "SCALING.md").read_text()
    assert f"{words}\n" in page
    assert f" {percent}%" in page
    result = call(words.split())
    assert result.stdout.splitlines()[-1].endswith(f" {percent}%"), result.stderr
