"""An exercise of the break-it lab is a folder exercises/NN_name:

    exercise.md     title, stage, minutes; what you observe; your task; hints; source
    start.patch     the script that the learner gets
    solution.patch  a solution
    answers.diff    right and wrong answers that the check is tried on: tools.lab.answers
    check.py        check(run): raises Wrong where the script is still wrong

Patches are against the script of the stage, so that an exercise cannot drift away from
it; one that is missing changes nothing, so the script is that of the stage.
"""

import functools
import json
import re
import tempfile
from pathlib import Path
from pickle import PickleError

import whatthepatch

from tools.lab import answers, checks
from tools.lab.checks import EPOCHS, TEST, TRAIN
from tools.run import compare
from tools.run.sample import cut
from tools.run.stages import CPU_PROCESSES, EVERY, ROOT, load_file, script

EXERCISES = ROOT / "exercises"


class Exercise:
    """An exercise, by its folder. Raises ValueError where its files do not fit."""

    def __init__(self, folder):
        self.folder = folder
        self.number = folder.name.partition("_")[0]
        self.text = (folder / "exercise.md").read_text()
        head = re.match(r"# (.*)\n\nStage (\w+), (\d+) minutes\.", self.text)
        if not head or head[2] not in EVERY.values():
            raise ValueError(f"{folder}/exercise.md: no title, stage and minutes")
        self.title, self.stage, self.minutes = head[1], head[2], int(head[3])

    def chapter(self, title):
        """Return a chapter of exercise.md."""
        found = re.search(rf"(?ms)^## {title}\n+(.*?)(?=^## |\Z)", self.text)
        if not found:
            raise ValueError(f"{self.folder}/exercise.md has no chapter {title!r}")
        return found[1].strip()

    def hints(self):
        """Return the three hints."""
        _, *hints = re.split(r"^\d\. ", self.chapter("Hints"), flags=re.MULTILINE)
        return [hint.strip() for hint in hints]

    def script(self, name):
        """Return the text of the script `start`, `solution`, `stage` or `rewritten`.

        Raises ValueError where its patch does not apply to the stage.
        """
        if name == "rewritten":
            return (EXERCISES / "rewritten" / f"{self.stage}.py").read_text()
        original = script(self.stage).read_text()
        path = self.folder / f"{name}.patch"
        if not path.exists():
            return original
        (patch,) = whatthepatch.parse_patch(path.read_text())
        try:
            lines = whatthepatch.apply_diff(patch, original)
        except whatthepatch.exceptions.WhatThePatchException as error:
            why = f"{path} does not apply to {self.stage}: {error}"
            raise ValueError(why) from None
        return "\n".join(lines) + "\n"

    def answers(self):
        """Return what answers.diff has, see answers.parse."""
        path = self.folder / "answers.diff"
        return answers.parse(path.read_text(), f"{self.folder.name}/answers.diff")

    def check(self, text):
        """Judge the text of a script. Raises Wrong with what is still wrong."""
        original = script(self.stage).read_text()
        run, run.solution, run.original = (
            functools.partial(observed, each, self.stage)
            for each in (text, self.script("solution"), original)
        )
        load_file("check", self.folder / "check.py").check(run)


@functools.cache  # many exercises are held against the same run
def observed(text, stage, *flags, processes=None, train=TRAIN, test=TEST, stand_in=None,
             reductions=False, float64=True):  # fmt: skip
    """Run the text of a script and return what was seen of it, an observe.Seen."""
    import torch  # here, so that what runs nothing answers at once

    from tools.lab import observe
    from tools.run import ranks

    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder).resolve()
        path, out = folder / stage / "mnist.py", folder / "out"
        path.parent.mkdir()
        path.write_text(text)
        words = [path, "--data", cut(folder / "data", train, test), "--out", out]
        words += ["--epochs", EPOCHS, *flags]
        count = processes or CPU_PROCESSES.get(stage, 0)
        prepare = observe.record, folder, stand_in, reductions
        places, code = {}, text.splitlines()
        try:
            ended = ranks.run(words, count, float64, checks.LIMIT, prepare)
        except ranks.TimedOut as late:
            ended, ended.returncode = late, 1
            for rank, line in late.places.items():
                at = f"line {line}: {code[line - 1].strip()}" if line else "start"
                places[rank] = at
        written = [folder / f"rank{rank}" for rank in range(count or 1)]
        events = [
            list(map(json.loads, p.read_text().splitlines()))
            for p in written
            if p.exists()
        ]
        metrics, model = out / "metrics.csv", out / "model.pth"
        try:
            rows = compare.read(metrics) if metrics.exists() else []
            weights = torch.load(model) if model.exists() else None
        except (ValueError, KeyError, TypeError, RuntimeError, OSError, PickleError):
            rows, weights = [], None
        return observe.Seen(
            events=events, status=ended.returncode, stdout=ended.stdout,
            stderr=ended.stderr, places=places, rows=rows, weights=weights, out=out,
            path=str(path), text=text,
        )  # fmt: skip


def exercises():
    """Return all exercises, in order."""
    folders = sorted(path.parent for path in EXERCISES.glob("*/exercise.md"))
    return [Exercise(folder) for folder in folders]
