"""The path through the exercises: four parts, each harder than the one before.

exercises/path.csv has a row for each exercise, in the order to take them: its name, its
stage, how many minutes it takes, its part, the exercises that it builds on, its title.
Each part ends with something to build.
"""

import csv

from tools.run.stages import ROOT

PARTS = {
    1: "First steps: devices, files, and a process per GPU",
    2: "Right numbers: batches, losses and counts",
    3: "In step: who waits for whom, and what stays equal",
    4: "A model in parts",
}


def read_path():
    """Return the rows of exercises/path.csv, dicts of texts."""
    with open(ROOT / "exercises/path.csv", newline="") as file:
        return list(csv.DictReader(file))
