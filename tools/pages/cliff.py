"""Record the loss of every step of the second curve: `python -m tools.pages.cliff`.

Of stage 13, and of stage 17 with some of its mistakes, for 150 steps, in cliff.json.
`make outcomes` calls it.
"""

import csv
import json
import tempfile
from pathlib import Path

from onecurve import ranks
from tools.pages.switches import FOLDER, SWITCHES, edited
from tools.run.stages import script

STORED = FOLDER / "cliff.json"
RING = "17_context_parallel"
MISTAKES = "no ring", "gradients not sent back", "no offset of the places"


def losses(stage, text, processes):
    """Return the loss of each step that a script takes, to five digits."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / stage / "gpt.py"
        path.parent.mkdir()
        path.write_text(text)
        result = ranks.run([path, "--every", 1, "--out", path.parent], processes)
        result.check_returncode()
        rows = csv.DictReader((path.parent / "metrics.csv").read_text().splitlines())
        return [round(float(row["loss"]), 5) for row in rows]


def record():
    """Return {"": losses of stage 13, mistake: those of stage 17 with it}."""
    found = {"": losses("13_gpt", script("13_gpt").read_text(), 0)}
    edits = {one["name"]: one["edits"] for one in SWITCHES if one["stage"] == RING}
    for name in MISTAKES:
        found[name] = losses(RING, edited(RING, edits[name]), 2)
    return found


if __name__ == "__main__":
    STORED.write_text(json.dumps(record(), indent=0).replace(",\n", ", ") + "\n")
