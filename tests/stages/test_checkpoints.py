"""Promise: what one stage saved, every stage loads."""

import pytest

from conftest import EVEN, rows, weights
from tools.run.data import tensors
from tools.run.stages import STAGES, load


@pytest.mark.parametrize("saved", STAGES)
def test_every_stage_loads_a_checkpoint(saved, trained, data):
    out = trained(saved)
    test = tensors(data(EVEN), train=False)
    for stage in STAGES:
        model = load(stage).Net(hidden=128)
        model.load_state_dict(weights(out), strict=True)
        # Stage 01 evaluates all of them: stages could differ in how they count.
        found = load("01_cpu").evaluate(model, test)
        assert found == tuple(rows(out)[-1][2:]), stage
