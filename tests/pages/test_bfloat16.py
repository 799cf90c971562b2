"""Promise: bfloat16 moves the curve, and breaks it, as its page says."""

import re

import pytest

from conftest import ROOT
from tools.pages import outcomes, variants

PAGE = (ROOT / "beyond" / "BFLOAT16.md").read_text()


def distance(name, other="01_cpu=1"):
    runs = [outcomes.stored_run(one)["steps"] for one in (name, other)]
    return max(abs(loss - right) for loss, right in zip(*runs, strict=True))


def test_bfloat16_stays_near_float32_and_a_bug_does_not():
    assert 10_000 * distance("04_ddp=2") < distance("04_ddp/set_epoch=2")
    for name in "autocast=1", "autocast=2", "mp_policy=2", "bf16_gradients=2":
        assert 1e-4 < distance(name) < 2e-3
    assert distance("autocast=1", "autocast=2") > 1e-4


def curves(text):
    rows = re.findall(r"(?m)^(\w+(?: --\S+)?)((?: +\d\.\d+){3})$", text)
    return {name: [float(loss) for loss in losses.split()] for name, losses in rows}


def test_weights_in_bfloat16_stop_at_the_learning_rate_that_the_page_names():
    falls = {name: one[0] - one[-1] for name, one in curves(PAGE).items()}
    assert falls["bf16_weights"] == pytest.approx(falls["04_ddp"], rel=0.01)
    assert falls["bf16_weights --lr=0.01"] < 0.7 * falls["04_ddp --lr=0.01"]
    assert falls["bf16_weights --lr=0.001"] < 0.1 * falls["04_ddp --lr=0.001"]


@pytest.mark.slow
def test_a_run_prints_what_the_page_shows():
    found = curves(variants.variants("autocast", "bf16_weights--lr=0.001"))
    page = curves(PAGE) | {"autocast": curves(PAGE)["04_ddp"]}
    for name, losses in found.items():
        assert losses == pytest.approx(page[name], abs=1e-3)
