"""The switches of the diffs: edits of a stage's script and their outcomes.

The edits are in switches.diff; `tools.pages.outcomes` records outcomes.json.
"""

import functools
import json
from difflib import SequenceMatcher
from pathlib import Path
from textwrap import dedent

from tools.run import diffs
from tools.run.edit import edit, read_edits, variant_text
from tools.run.stages import previous, script

FOLDER = Path(__file__).parent
STORED = FOLDER / "outcomes.json"


def read_switches():
    """Return the switches of switches.diff as dicts of their fields and these:

    "key" is the name in outcomes.json, `04_ddp/set_epoch`; "stage" and "name" are its
    parts, "ranks" numbers, and "edits" the changes.
    """
    found = []
    for one in read_edits(FOLDER / "switches.diff"):
        stage, _, name = one.name.partition("/")
        ranks = [int(number) for number in one.fields.pop("ranks", "2").split()]
        switch = {"key": one.name, "stage": stage, "name": name, "ranks": ranks}
        found.append({**switch, **one.fields, "edits": one.changes})
    return found


SWITCHES = read_switches()


@functools.cache
def read_outcomes():
    """Return the data of outcomes.json."""
    return json.loads(STORED.read_text())


def hunk_of(switch):
    """Return the number of the hunk that shows a switch.

    Returns None for a variant, for `hunk: 0` and for a stage without a diff.
    """
    stage = switch["stage"]
    if "hunk" in switch:
        return int(switch["hunk"]) or None
    if not previous(stage) or "variant" in switch:
        return None
    struck = without(stage, switch["edits"])["struck"]
    for number, hunk in enumerate(diffs.hunks(previous(stage), stage), start=1):
        for tag, _, _, first, end in hunk.opcodes:
            if tag != "equal" and set(range(first, max(end, first + 1))) & set(struck):
                return number
    return None


def edited(stage, edits, variant=None):
    """Return a stage's script, or a variant of it, with a switch's edits applied.

    Raises ValueError unless each string to replace occurs exactly once.
    """
    return edit(variant_text(variant or stage), *edits)


def without(stage, edits):
    """Return the lines that edits remove from a stage's script, and their replacement.

    {"struck": numbers of the removed lines, from 0, "instead": the new lines}.
    Comments are dropped because they describe the original line.
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
