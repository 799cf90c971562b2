"""Promise: predictions are the formulas, and the formulas count messages."""

import pytest

from conftest import ROOT, call
from tools.bench import predict


@pytest.mark.parametrize("number", [2, 3, 4, 8])
def test_a_ring_takes_what_its_messages_take(number):
    """Counted message by message: N ranks, N parts, each once round and once more."""
    size = 1e8
    bandwidth = 1e9
    latency = 1e-3
    seconds = 0.0
    parts = [{rank} for rank in range(number)]  # whose share of part 0 a rank has
    for _ in range(2 * (number - 1)):
        seconds += latency + size / number / bandwidth
        parts = [parts[rank] | parts[rank - 1] for rank in range(number)]
    assert all(part == set(range(number)) for part in parts)
    assert predict.ring(size, number, bandwidth, latency) == pytest.approx(seconds)
    assert predict.ring(size, 1, bandwidth, latency) == 0


def test_the_example_is_62_5_hours_and_a_little_more():
    result = call(["make", "predict", "NODES=4", "GPUS_PER_NODE=8"])
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == predict.prediction()
    rows = [line.split(" | ") for line in result.stdout.splitlines()[4:]]
    assert [row[1] for row in rows] == ["1", "2", "4", "8", "16", "32"]
    assert rows[0][2:4] == ["20", "2,000"]
    assert rows[-1][3] == "62.5"
    assert 62.5 < float(rows[-1][4]) < 70


def test_a_step_takes_one_ring_in_a_node_and_one_between_nodes():
    given = {**predict.DEFAULTS, "STEP": 0.1}
    inside = 1.75 * 102e6 / 3e11 + 14 * 5e-6
    between = 1.5 * 102e6 / (10e9 / 8) + 6 * 20e-6
    assert predict.step(given, 1, 1) == 0.1
    assert predict.step(given, 1, 8) == pytest.approx(0.1 + inside)
    assert predict.step(given, 4, 8) == pytest.approx(0.1 + inside + between)


def test_the_last_row_has_all_nodes_and_gpus():
    given = {**predict.DEFAULTS, "NODES": 3, "GPUS_PER_NODE": 6}
    rows = [line.split(" | ") for line in predict.prediction(given).splitlines()[4:]]
    assert [row[1] for row in rows] == ["1", "2", "4", "6", "12", "18"]


def test_the_page_says_what_a_large_model_sends_and_stores():
    """16 bytes per weight; rings of 8 GPUs; a pipeline that is idle in 7 of 15 slots.

    A ring passes on an eighth seven times, and in an all-reduce seven times more.
    """
    text = (ROOT / "SCALING.md").read_text()
    _, _, after = text.partition("| data parallel |")
    rows = ("| data parallel |" + after).splitlines()[:4]
    names = "data parallel", "fully sharded", "tensor parallel", "pipeline"
    weights = 8.3e9
    part = 4 * weights / 8
    activations = 4 * 8 * 1024 * 3072
    sent = (
        2 * 7 * part,
        3 * 7 * part,
        72 * 4 * 2 * 7 * activations / 8,
        2 * activations,
    )
    stored = 16 * weights, 2 * weights, 2 * weights, 2 * weights
    idle = "–", "–", "–", f"{7 / 15:.0%}"
    for number, row in enumerate(rows):
        cells = row.strip("| ").split(" | ")
        assert (cells[0], cells[5]) == (names[number], idle[number])
        assert cells[2] == f"{stored[number] / 1e9:.1f}"
        assert cells[4] == f"{sent[number] / 1e9:.1f}"


def test_fractions_are_read_where_they_make_sense():
    words = {"STEP": "0.1", "MB": "1.5", "NETWORK": "2.5", "NODES": "3"}
    numbers = {"STEP": 0.1, "MB": 1.5, "NETWORK": 2.5, "NODES": 3, "GPUS_PER_NODE": 8}
    assert predict.read(words) == numbers


@pytest.mark.parametrize(
    ("word", "line"),
    [
        ("NODES=0", "NODES=0 must be a whole number above 0, such as NODES=4"),
        ("NODES=1.5", "NODES=1.5 must be a whole number above 0, such as NODES=4"),
        ("STEP=fast", "STEP=fast must be a number above 0, such as STEP=7.2"),
        ("MB=inf", "MB=inf must be a number above 0, such as MB=102"),
        ("NETWORK=nan", "NETWORK=nan must be a number above 0, such as NETWORK=10"),
    ],
)
def test_predict_refuses(word, line):
    with pytest.raises(SystemExit, match=f"^{line}$"):
        predict.read(dict([word.split("=")]))
