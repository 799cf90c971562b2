"""Promise: what a cut of the transformer sends, measured, is what its formula says."""

import pytest

from tools.bench import held
from tools.pages.switches import variant_text
from tools.pages.variants import variant_stage

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
