"""The switches of the diffs: edits of a stage's script, and what a run of each did.

switches.json has the edits, by hand; `tools.pages.outcomes` records outcomes.json.
"""

import json
from difflib import SequenceMatcher
from pathlib import Path
from textwrap import dedent

from tools.lab.exercise import patched
from tools.run.edit import edit
from tools.run.stages import ROOT, script

FOLDER = Path(__file__).parent
SWITCHES = json.loads((FOLDER / "switches.json").read_text())
STORED = FOLDER / "outcomes.json"
VARIANTS = ROOT / "tests" / "beyond" / "variants"  # a patch for each variant


def key(switch):
    """Return the name of a switch in outcomes.json: `04_ddp/set_epoch`."""
    return f"{switch['stage']}/{switch['name']}"


def read_outcomes():
    """Return what outcomes.json holds."""
    return json.loads(STORED.read_text())


def variant_text(name, stage):
    """Return a stage's script with the patch of a variant."""
    return patched(script(stage).read_text(), VARIANTS / f"{name}.patch", stage)


def edited(stage, edits, variant=None):
    """Return a stage's script, or a variant of it, with a switch's edits.

    Raises ValueError where a text to replace is not there exactly once.
    """
    text = variant_text(variant, stage) if variant else script(stage).read_text()
    return edit(text, *edits.items())


def without(stage, edits):
    """Return what edits do to a stage's script: lines that go, and lines that come.

    {"struck": numbers of the lines, from 0, "instead": lines that stand there instead}.
    Comments are left out: they speak of the line that was right.
    """
    old = script(stage).read_text().splitlines()
    new = edited(stage, edits).splitlines()
    struck = []
    instead = []
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, old, new).get_opcodes():
        if tag != "equal":
            struck += range(i1, i2)
            instead += new[j1:j2]
    code = [line.partition("#")[0].rstrip() for line in instead]
    return {"struck": struck, "instead": dedent("\n".join(filter(None, code)))}
