"""Promise: each rank stores and sends what the pages and their formulas say."""

import re

import pytest

from conftest import ROOT
from tools.bench import held
from tools.run.stages import MNIST, RESUMES

P = 27_280 * 4  # bytes of float32 weights
ENDS = 2_128 * 4  # bytes of the embedding and the head
A = 32 * 32 * 32 * 4  # bytes of activations: sequences x tokens x width


EXACT = {  # stage or variant -> rank 0's bytes of weights and bytes sent per step
    "13_gpt": (P, 0),
    "14_data_parallel": (P, 2 * P / 2),
    "fsdp": (P / 2, (3 * P - ENDS) / 2),
    "16_pipeline_1f1b": (56_448, A),
    "17_context_parallel": (P, 2 * 4 * A / 2 + P),
    "gathered_keys": (P, 2 * 4 * A / 2 + P),
    "recomputed": (P, 2 * 6 * A / 2 + P),
    # FSDP gathers the blocks' weights twice and the ends' once.
    "20_grid": (P / 4, 2 * 4 * A / 2 / 2 + 3 / 4 * (3 * P - ENDS)),
}


def measured():
    """Return {name: [ranks, weights, optimizer, saved, sent]} from the pages' tables.

    `held` measured them; another test reports stale ones.
    """
    found = {}
    for page in sorted((ROOT / "transformer").glob("**/*.md")):
        rows = r"^\| `(\w+)` \| ((?:[\d,]+ \| ){5})"
        for name, cells in re.findall(rows, page.read_text(), re.MULTILINE):
            cells = cells.replace(",", "").split(" | ")[:5]
            found[name] = [int(cell) for cell in cells]
    return found


MEASURED = measured()


@pytest.mark.parametrize("name", EXACT)
def test_a_rank_holds_and_sends_what_its_formula_says(name):
    _, weights, optimizer, _, sent = MEASURED[name]
    assert (weights, sent) == EXACT[name]
    assert optimizer == 2 * weights


def test_a_rank_saves_less_the_further_a_text_is_cut():
    *_, one, _ = MEASURED["13_gpt"]
    for stage in "14_data_parallel", "16_pipeline_1f1b", "17_context_parallel":
        *_, saved, _ = MEASURED[stage]
        assert 0.1 * one < saved < one


def rows_of_the_page():
    """Return {stage: its other cells} from the table in SCALING_DETAILS.md."""
    found = {}
    for line in (ROOT / "docs/SCALING_DETAILS.md").read_text().splitlines():
        name, *cells = line.strip("| ").split(" | ")
        if name.strip("`") in MNIST.values():
            found[name.strip("`")] = cells
    return found


@pytest.mark.slow
def test_the_first_stages_hold_and_send_what_the_page_says():
    """For the layer in use, only tensor parallelism saves memory; FSDP doesn't."""
    found = {stage: held.measure(stage) for stage in held.MEASURED}
    assert [*found, *RESUMES] == list(MNIST.values())
    page = rows_of_the_page()
    assert list(page) == list(found)
    # Bytes that stages 3 and 6 copy between two GPUs in one process.
    copied = {"03_dp": 4 * 785 * 128 + 4 * 1290 + 32 * 784 + 4 * 640 / 2}
    copied["06_model_parallel"] = 4 * (64 * 128 + 640)
    for stage, ranks in found.items():
        weights = [one["weights"] for one in ranks]
        totals = [2 * one["weights"] + one["optimizer"] for one in ranks]
        for numbers, cell in (weights, page[stage][1]), (totals, page[stage][2]):
            assert " and ".join(f"{n:,}" for n in dict.fromkeys(numbers)) == cell
        # In DDP, rank 0 also sends its bucket layout once: use the last rank.
        sent = copied.get(stage, ranks[-1]["sent"])
        assert page[stage][3] == f"{sent:,.0f}"
    for stage, width in ("04_ddp", 128), ("07_fsdp", 128), ("08_tensor_parallel", 64):
        assert [one["layer"] for one in found[stage]] == [4 * 785 * width] * 2


def test_nproc_and_args_count(monkeypatch):
    monkeypatch.setenv("NPROC", "4")
    monkeypatch.setenv("ARGS", "--hidden 132")
    found = [one["weights"] for one in held.measure("08_tensor_parallel")]
    assert found == [4 * (785 * 33 + 330 + 10)] * 4
    last = held.measure("09_pipeline")[1]  # always on two ranks
    assert last["weights"] == 4 * 1330
