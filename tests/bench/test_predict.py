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


def test_the_last_row_has_all_nodes_and_gpus():
    rows = predict.prediction({**predict.DEFAULTS, "NODES": 3, "GPUS_PER_NODE": 6})
    assert [row[1] for row in rows[1:]] == [1, 2, 4, 6, 12, 18]


def test_the_page_says_what_a_large_model_sends_and_stores():
    """In GB: 16 bytes per weight, whole or an eighth; what rings of 8 GPUs pass on."""
    text = (ROOT / "SCALING.md").read_text()
    rows = text.partition("| idle |\n")[2].splitlines()[1:5]
    weights = 8.3e9
    activations = 4 * 8 * 1024 * 3072
    expected = {
        "data parallel": (16 * weights, 2 * 7 / 8 * 4 * weights),
        "fully sharded": (2 * weights, 3 * 7 / 8 * 4 * weights),
        "tensor parallel": (2 * weights, 4 * 72 * 2 * 7 / 8 * activations),
        "pipeline": (2 * weights, 2 * activations),
    }
    found = {}
    for row in rows:
        name, _, stored, _, sent, _ = row.strip("| ").split(" | ")
        found[name] = stored, sent
    for name, sizes in expected.items():
        assert found.pop(name) == tuple(f"{size / 1e9:.1f}" for size in sizes)
    assert found == {}
