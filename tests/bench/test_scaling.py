"""Promise: SCALING.md's formulas match what the second curve sends and stores."""

import re

import pytest
import torch
from test_held import MEASURED
from torch.utils.checkpoint import checkpoint

from conftest import ROOT
from tools.bench import planned, scaling
from tools.bench.held import Saved
from tools.run.stages import load

PAGE = " ".join((ROOT / "docs/SCALING.md").read_text().split())
SMALL = scaling.Model(blocks=2, width=32, vocabulary=16, length=32)
TOKENS = 32 * 32  # per batch
A = 4 * TOKENS * SMALL.width  # bytes of activations between two blocks


def sent(*words, **options):
    return sum(scaling.sent(*words, **options).values())


@pytest.mark.parametrize(
    ("stage", "cut", "of_the_formula"),
    [
        ("14_data_parallel", "DDP", 0),
        ("15_sequence_parallel", "tensor", 4 * A / 2),  # plus the ends
        ("16_pipeline_1f1b", "pipeline", -A),  # rank 0 has one neighbor
        ("17_context_parallel", "context", 0),
        ("19_expert_parallel", "experts", 0),  # two on each rank
        ("20_grid", "FSDP", 2 * 4 * A / 2 / 2),  # plus its rings
    ],
)
def test_a_rank_sends_what_the_formula_says(stage, cut, of_the_formula):
    """Biases, norms and positions are ignored, 7% of such a small model."""
    ranks, *_, bytes_sent = MEASURED[stage]
    formula = sent(SMALL, cut, ranks, TOKENS, size=4) + of_the_formula
    assert bytes_sent == pytest.approx(formula, rel=0.07)


@pytest.mark.parametrize(
    ("stage", "cut"),
    [("13_gpt", "DDP"), ("14_data_parallel", "DDP"), ("20_grid", "FSDP")],
)
def test_a_rank_stores_what_the_formula_says(stage, cut):
    ranks, weights, optimizer, kept, _ = MEASURED[stage]
    assert 2 * weights == optimizer
    stored = 2 * weights + optimizer  # gradients are as large as weights
    assert stored == pytest.approx(scaling.state(SMALL, cut, ranks), rel=0.07)
    if cut == "DDP":
        formula = scaling.saved(SMALL, TOKENS / ranks, size=4)
        assert kept - weights == pytest.approx(formula, rel=0.03)


@pytest.mark.parametrize("again", [False, True])
def test_a_block_keeps_what_the_formula_says(again):
    """Norms also keep two numbers per token, attention one per token and head."""
    found = []
    script = load("13_gpt")
    texts, _ = script.draw_batch(32, 0)
    for blocks in 2, 3:
        model = script.GPT(blocks)
        saved = Saved()
        hooks = saved.pack, lambda one: one.tensor
        with torch.autograd.graph.saved_tensors_hooks(*hooks):
            x = model.embedding(texts)
            for block in model.blocks:
                x = checkpoint(block, x, use_reentrant=False) if again else block(x)
        weights = sum(one.nbytes for one in block.parameters() if one.dim() > 1)
        found.append(saved.most - (0 if again else blocks * weights))
    more, less = [
        scaling.saved(SMALL._replace(blocks=blocks), TOKENS, 4, again)
        for blocks in (3, 2)
    ]
    assert found[1] - found[0] == pytest.approx(more - less, rel=0.02)


def test_more_computing_hides_the_exchange_from_the_threshold_on():
    """A step takes longer than its compute only below the threshold."""
    for cluster in scaling.CLUSTERS.values():
        limits = scaling.thresholds(scaling.SEVEN, cluster)
        for factor, hidden in (0.99, False), (1.01, True):
            for cut in "DDP", "FSDP", "HSDP":
                tokens = factor * limits[cut] * cluster.ranks
                needed, best, worst = scaling.step(scaling.SEVEN, cut, cluster, tokens)
                assert (best == pytest.approx(needed)) is hidden
                assert worst > best
            width = int(factor * limits["tensor"])
            wide = scaling.SEVEN._replace(width=width, vocabulary=0)
            needed, best, _ = scaling.step(wide, "tensor", cluster, 1e6)
            assert (best == pytest.approx(needed)) is hidden


def test_a_grid_is_tensor_parallelism_inside_machines_and_fsdp_between_them():
    found = scaling.sent(scaling.SEVEN, "grid", 32, 4 * TOKENS)
    inside = sent(scaling.SEVEN, "tensor", 8, TOKENS)
    between = sent(scaling.SEVEN, "FSDP", 4, TOKENS) / 8  # of the weights
    assert found == pytest.approx({"machine": inside, "cards": between})


def test_the_text_says_how_long_a_step_takes_and_from_which_batch_ddp_pays():
    cluster = scaling.CLUSTERS["two, one card each"]
    limit = scaling.thresholds(scaling.SEVEN, cluster)["DDP"]
    assert f"{limit:,.0f} tokens per GPU, less than two sequences" in PAGE
    assert limit < 2 * scaling.SEVEN.length
    tokens = 64 * scaling.SEVEN.length
    size = sent(scaling.SEVEN, "DDP", cluster.ranks, tokens)
    _, shortest, longest = scaling.step(scaling.SEVEN, "DDP", cluster, tokens)
    assert f"which is {size / 1e9:.0f} GB." in PAGE
    assert f"this takes {size / cluster.links['ring']:.2f} s" in PAGE
    assert f"from {shortest:.2f} to {longest:.2f} s" in PAGE


def test_the_first_table_answers_by_the_formulas():
    plans = (8, 8, False), (4, 8, False), (8, 8, True), (4, 16, False)
    sizes = [sum(planned.memory(*plan).values()) / 1e9 for plan in plans]
    assert re.findall(r"\| (\d+) GB", PAGE)[:4] == [f"{size:.0f}" for size in sizes]
    computing, *_ = scaling.step(scaling.SEVEN, "FSDP", scaling.Cluster(1, 8), 2**18)
    seconds = [f"{computing * factor:.1f}" for factor in (1, 4 / 3, 1 / 2)]
    assert re.findall(r"(\d\.\d) s \|", PAGE)[:3] == seconds
