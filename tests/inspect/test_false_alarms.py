"""Promise: no right script is condemned: the inspector finds no ERROR in any."""

import pytest

from conftest import ROOT
from onecurve import report, runs
from parts import part
from tools.lab import answers
from tools.lab.exercise import along_the_path
from tools.run.stages import CPU_PROCESSES, EVERY, OWN, TRANSFORMER, script

OF_STAGES = [*EVERY.values(), *OWN]


def right_scripts():
    """Return {name: (text, stage)} of all right scripts of the repository."""
    found = {name: (script(name).read_text(), name) for name in OF_STAGES}
    for exercise in along_the_path():
        stage = exercise.stage
        found[f"{exercise.name} solution"] = exercise.script("solution"), stage
        for answer in answers.read(exercise):
            if answer.verdict == "right":
                name = f"{exercise.name} {answer.where.rpartition(':')[2]}"
                found[name] = answer.script(exercise), stage
    return found


SCRIPTS = right_scripts()


@pytest.mark.parametrize("name", part("right scripts", SCRIPTS, 16))
def test_a_right_script_has_no_error(name, tmp_path):
    text, stage = SCRIPTS[name]
    path = tmp_path / stage / "mnist.py"
    path.parent.mkdir()
    path.write_text(text)
    ranks = CPU_PROCESSES.get(stage, 2 if stage.startswith("after") else 1)
    flags = ["--data", ROOT / "data/sample", "--epochs", "2"]
    if stage in TRANSFORMER.values():
        flags = ["--steps", "8", "--every", "4"]
    command = path, flags, ranks
    found = runs.inspect(command, tmp_path / "inspection")
    errors = [one for one in found.findings if one.level == "ERROR"]
    assert not errors, report.text(path.name, found, 0, tmp_path)
