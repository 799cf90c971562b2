"""Promise: every rank holds and sends what the pages and their formulas say."""

import pytest

from conftest import ROOT
from tools.bench import held
from tools.pages.switches import variant_text
from tools.pages.variants import variant_stage
from tools.run.stages import MNIST, RESUMES

P = 27_280 * 4  # bytes of weights, in float32
ENDS = 2_128 * 4  # of these in the embedding and the head
A = 32 * 32 * 32 * 4  # of activations: texts x letters x width


@pytest.mark.parametrize(
    ("stage", "weights", "sent"),
    [
        ("13_gpt", [P], 0),
        ("14_data_parallel", [P, P], 2 * P / 2),
        ("16_pipeline_1f1b", [56_448, 52_672], A),
        ("17_context_parallel", [P, P], 2 * 4 * A / 2 + P),
        # FSDP gathers the blocks' weights twice, and those of the ends once.
        ("20_grid", [P / 4] * 4, 2 * 4 * A / 2 / 2 + 3 / 4 * (3 * P - ENDS)),
    ],
)
def test_a_rank_holds_and_sends_what_the_formula_says(stage, weights, sent):
    found = held.measure(stage)
    assert [one["weights"] for one in found] == weights
    assert [one["optimizer"] for one in found] == [2 * size for size in weights]
    assert [one["sent"] for one in found] == [sent] * len(weights)


@pytest.mark.parametrize(
    ("name", "weights", "sent"),
    [
        ("fsdp", P / 2, (3 * P - ENDS) / 2),
        ("gathered_keys", P, 2 * 4 * A / 2 + P),
        ("recomputed", P, 2 * 6 * A / 2 + P),
    ],
)
def test_so_does_a_side_door(name, weights, sent, tmp_path):
    stage, path = variant_stage(name), tmp_path / "gpt.py"
    path.write_text(variant_text(name, stage))
    found = held.measure(stage, path)
    assert [(one["weights"], one["sent"]) for one in found] == [(weights, sent)] * 2


def test_each_rank_saves_less_the_further_a_text_is_cut():
    one = held.measure("13_gpt")[0]["saved"]
    for stage in "14_data_parallel", "16_pipeline_1f1b", "17_context_parallel":
        assert all(0.1 * one < found["saved"] < one for found in held.measure(stage))


def rows_of_the_page():
    """Return {stage: the cells that follow} of the table in SCALING.md."""
    found = {}
    for line in (ROOT / "SCALING.md").read_text().splitlines():
        name, *cells = line.strip("| ").split(" | ")
        if name.strip("`") in MNIST.values():
            found[name.strip("`")] = cells
    return found


def test_the_first_stages_hold_and_send_what_the_page_says():
    """The layer in use is what FSDP does not save on, and tensor parallelism does."""
    found = {stage: held.measure(stage) for stage in held.MEASURED}
    assert [*found, *RESUMES] == list(MNIST.values())
    page = rows_of_the_page()
    assert list(page) == list(found)
    # What stages 3 and 6 copy between two GPUs, in one process.
    copied = {"03_dp": 4 * 785 * 128 + 4 * 1290 + 32 * 784 + 4 * 640 / 2}
    copied["06_model_parallel"] = 4 * (64 * 128 + 640)
    for stage, ranks in found.items():
        weights = [one["weights"] for one in ranks]
        totals = [2 * one["weights"] + one["optimizer"] for one in ranks]
        for numbers, cell in (weights, page[stage][1]), (totals, page[stage][2]):
            assert " and ".join(f"{n:,}" for n in dict.fromkeys(numbers)) == cell
        # Rank 0 of DDP tells the others once how it has packed the gradients.
        sent = copied.get(stage, ranks[-1]["sent"])
        assert page[stage][3] == f"{sent:,.0f}"
    for stage, width in ("04_ddp", 128), ("07_fsdp", 128), ("08_tensor_parallel", 64):
        assert [one["layer"] for one in found[stage]] == [4 * 785 * width] * 2


def test_nproc_and_args_count(monkeypatch):
    monkeypatch.setenv("NPROC", "4")
    monkeypatch.setenv("ARGS", "--hidden 132")
    found = [one["weights"] for one in held.measure("08_tensor_parallel")]
    assert found == [4 * (785 * 33 + 330 + 10)] * 4
    last = held.measure("09_pipeline")[1]  # on two ranks, always
    assert last["weights"] == 4 * 1330
