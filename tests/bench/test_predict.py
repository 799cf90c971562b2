"""Promise: predictions are the formulas, and the formulas count messages."""

import pytest

from conftest import call
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


@pytest.mark.parametrize("gpus", [2, 3, 8])
def test_modes_send_and_wait_as_counted(gpus):
    """Rings message by message; a pipeline's micro-batches slot by slot."""
    size = 24e6
    message = size / gpus
    sent = predict.communication
    assert sent("ddp", gpus, size) == pytest.approx(2 * (gpus - 1) * message)
    assert sent("fsdp", gpus, size) == pytest.approx(3 * (gpus - 1) * message)
    all_reduce = 2 * (gpus - 1) * 1e6 / gpus
    assert sent("tp", gpus, size, 1e6, 5) == pytest.approx(5 * 4 * all_reduce)
    assert sent("pp", gpus, size, 1e6) == 2e6
    assert predict.memory("ddp", gpus, size) == 96e6  # 16 bytes per weight
    for mode in "fsdp", "tp", "pp":
        assert predict.memory(mode, gpus, size) == pytest.approx(96e6 / gpus)
    ended = [0] * gpus
    for _ in range(5):
        for place in range(gpus):
            before = ended[place - 1] if place else 0
            ended[place] = max(ended[place], before) + 1
    assert predict.bubble(gpus, 5) == pytest.approx(1 - 5 / ended[-1])


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
