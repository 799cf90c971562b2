"""Promise: no right script of the repository is accused: no ERROR in any of them.

golden.csv has the findings of each, by name and level.
"""

import csv
from pathlib import Path

import pytest

from conftest import ROOT, slow
from onecurve import api
from tools.lab import answers
from tools.lab.exercise import along_the_path
from tools.run.stages import CPU_PROCESSES, EVERY, OWN, TRANSFORMER, script

FAST = ["04_ddp", "07_fsdp", "after_ddp"]


def right_scripts():
    """Return {name: (text, stage)} of all right scripts of the repository."""
    found = {}
    for name in [*EVERY.values(), *OWN]:
        found[name] = script(name).read_text(), name
    for exercise in along_the_path():
        stage = exercise.stage
        found[f"{exercise.name} solution"] = exercise.script("solution"), stage
        for answer in answers.read(exercise):
            if answer.verdict == "right":
                name = f"{exercise.name} {answer.where.rpartition(':')[2]}"
                found[name] = answer.script(exercise), stage
    return found


def read_golden():
    """Return {script: [(finding, level), ...]} of golden.csv, without empty rows."""
    found = {}
    with open(Path(__file__).with_name("golden.csv"), newline="") as file:
        for row in csv.DictReader(file):
            pairs = found.setdefault(row["script"], [])
            if row["finding"]:
                pairs.append((row["finding"], row["level"]))
    return found


SCRIPTS = right_scripts()
GOLDEN = read_golden()


def test_the_file_has_every_script():
    assert list(GOLDEN) == list(SCRIPTS)
    levels = {level for pairs in GOLDEN.values() for _, level in pairs}
    assert "ERROR" not in levels


@pytest.mark.parametrize(
    "name", [name if name in FAST else slow(name) for name in SCRIPTS]
)
def test_a_right_script_has_the_findings_of_the_file(name, tmp_path):
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
    assert found == GOLDEN[name], api.text(path.name, inspection, 0, tmp_path)
