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
    assert distance("04_ddp=2") < 2e-5
    for name in "autocast=1", "autocast=2", "mp_policy=2", "bf16_gradients=2":
        assert 1e-4 < distance(name) < 2e-3
    assert distance("autocast=1", "autocast=2") > 1e-4
    assert distance("04_ddp/set_epoch=2") > 0.1


def curves(text):
    """Return {name and flags: losses of three epochs}."""
    row = r"(?m)^(\w+(?: --\S+)?) +(\d\.\d+) +(\d\.\d+) +(\d\.\d+)$"
    rows = re.findall(row, text)
    return {name: [float(loss) for loss in losses] for name, *losses in rows}


def test_weights_in_bfloat16_stop_at_the_learning_rate_that_the_page_names():
    losses = curves(PAGE)
    falls = {name: curve[0] - curve[-1] for name, curve in losses.items()}
    assert falls["bf16_weights"] == pytest.approx(falls["04_ddp"], rel=0.01)
    assert falls["bf16_weights --lr=0.01"] < 0.7 * falls["04_ddp --lr=0.01"]
    assert falls["bf16_weights --lr=0.001"] < 0.1 * falls["04_ddp --lr=0.001"]


@pytest.mark.slow
def test_a_run_prints_what_the_page_shows():
    found = curves(variants.variants("autocast", "bf16_weights--lr=0.001"))
    right = [loss for loss, *_ in outcomes.stored_run("01_cpu=1")["curve"]]
    assert found["autocast"] == pytest.approx(right, abs=1e-3)
    name = "bf16_weights --lr=0.001"
    assert found[name] == pytest.approx(curves(PAGE)[name], abs=1e-3)
