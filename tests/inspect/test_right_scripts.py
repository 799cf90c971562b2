"""Promise: no right script is accused, and the findings in each are known.

FOUND is the golden list for these scripts, like onecurve's golden.csv for its own.
"""

import pytest

from conftest import ROOT, slow
from onecurve import api
from tools.lab.exercise import along_the_path
from tools.run.stages import CPU_PROCESSES, EVERY, OWN, TRANSFORMER, script

FAST = ["04_ddp"]
FOUND = {  # findings and levels; other right scripts have none
    "17_moving_plateau 1": [("schedule", "LOOK")],
    "23_batchnorm_hangs 1": [("evaluated", "SLOW")],
    "23_batchnorm_hangs 3": [("evaluated", "SLOW"), ("buffers", "LOOK")],
    "27_in_shares 1": [("not_optimized", "LOOK")],
}


def right_scripts():
    """Return {name: (source, stage)} for all right scripts in the repository."""
    found = {}
    for name in [*EVERY.values(), *OWN]:
        found[name] = script(name).read_text(), name
    for exercise in along_the_path():
        stage = exercise.stage
        found[f"{exercise.name} solution"] = exercise.script("solution"), stage
        for number, answer in enumerate(exercise.answers(), start=1):
            if answer.name.startswith("right"):
                name = f"{exercise.name} {number}"
                found[name] = exercise.answered(answer), stage
    return found


SCRIPTS = right_scripts()


@pytest.mark.parametrize(
    "name", [name if name in FAST else slow(name) for name in SCRIPTS]
)
def test_a_right_script_is_not_accused(name, tmp_path):
    text, stage = SCRIPTS[name]
    path = tmp_path / stage / "mnist.py"
    path.parent.mkdir()
    path.write_text(text)
    ranks = CPU_PROCESSES.get(stage, 2 if stage.startswith("after") else 1)
    flags = ["--data", ROOT / "data/sample", "--epochs", "2"]
    if stage in TRANSFORMER.values():
        flags = ["--steps", "8", "--every", "4"]
    inspection = api.inspect((path, flags, ranks), tmp_path / "inspection")
    found = [(one.name, one.level) for one in inspection.findings]
    assert found == FOUND.get(name, []), api.text(path.name, inspection, 0, tmp_path)
