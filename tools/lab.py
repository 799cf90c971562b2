"""The break-it lab: `python -m tools.lab check 04`, and what the checks share.

An exercise is a folder exercises/NN_name:

    exercise.md     title, stage, minutes; what you observe; your task; three hints; source
    start.patch     the script that the learner gets
    solution.patch  a solution
    right.patch     another right solution, and
    wrong.patch     a wrong one: what the exercise's test tries besides
    check.py        check(run): raises Wrong where the script is still wrong

Patches are against the script of the stage, so that an exercise cannot drift away from it;
one that is missing changes nothing, so the script is that of the stage.
"""

import functools
import json
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path
from pickle import PickleError

import whatthepatch

from tools import compare, data
from tools.make_sample import cut
from tools.stages import DISTRIBUTED, ROOT, STAGES, load_file, refuse, script

EXERCISES = ROOT / "exercises"
WORKSHOP = Path(os.environ.get("WORKSHOP") or ROOT / "workshop")
LIMIT = 12  # seconds; a run takes one or two, and one that takes more hangs
TRAIN, TEST, EPOCHS = 512, 101, 2  # images, and passes
CLOSE = 1e-9  # relative; the runs compute in float64


class Wrong(Exception):
    """The script is still wrong: the message says what was seen, and what was expected."""


class Exercise:
    """An exercise, by its folder. Raises ValueError where its files do not fit."""

    def __init__(self, folder):
        self.folder = folder
        self.number = folder.name.partition("_")[0]
        self.text = (folder / "exercise.md").read_text()
        head = re.match(r"# (.*)\n\nStage (\w+), (\d+) minutes\.", self.text)
        if not head or head[2] not in STAGES:
            raise ValueError(f"{folder}/exercise.md: no title, stage and minutes")
        self.title, self.stage, self.minutes = head[1], head[2], int(head[3])
        self.workshop = WORKSHOP / folder.name

    def chapter(self, title):
        """Return a chapter of exercise.md."""
        found = re.search(
            rf"^## {title}\n+(.*?)(?=^## |\Z)", self.text, re.MULTILINE | re.DOTALL
        )
        if not found:
            raise ValueError(f"{self.folder}/exercise.md has no chapter {title!r}")
        return found[1].strip()

    def hints(self):
        """Return the three hints."""
        return [hint.strip() for hint in
                re.split(r"^\d\. ", self.chapter("Hints"), flags=re.MULTILINE)[1:]]  # fmt: skip

    def script(self, name):
        """Return the text of the script `start`, `solution`, `right` or `wrong`.

        Raises ValueError where its patch does not apply to the stage.
        """
        original = script(self.stage).read_text()
        path = self.folder / f"{name}.patch"
        if not path.exists():
            return original
        (patch,) = whatthepatch.parse_patch(path.read_text())
        try:
            lines = whatthepatch.apply_diff(patch, original)
        except whatthepatch.exceptions.WhatThePatchException as error:
            raise ValueError(
                f"{path} does not apply to {self.stage}: {error}"
            ) from None
        return "\n".join(lines) + "\n"

    def check(self, text):
        """Judge the text of a script. Raises Wrong with what is still wrong."""
        run = functools.partial(observed, text, self.stage)
        run.solution = functools.partial(observed, self.script("solution"), self.stage)
        original = script(self.stage).read_text()
        run.original = functools.partial(observed, original, self.stage)
        load_file("check", self.folder / "check.py").check(run)


@functools.cache  # many exercises are held against the same run
def observed(text, stage, *flags, processes=2, train=TRAIN, test=TEST, stand_in=None,
             reductions=False, float64=True):  # fmt: skip
    """Run the text of a script and return what was seen of it, an observe.Seen."""
    import torch  # here, so that what runs nothing answers at once

    from tools import observe, ranks

    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder).resolve()
        path, out = folder / stage / "mnist.py", folder / "out"
        path.parent.mkdir()
        path.write_text(text)
        words = [path, "--data", cut(folder / "data", train, test), "--out", out]
        words += ["--epochs", EPOCHS, *flags]
        count = processes if stage in DISTRIBUTED else 0
        prepare = observe.record, folder, stand_in, reductions
        places, status, code = None, 1, text.splitlines()
        try:
            result = ranks.run(words, count, float64, LIMIT, prepare)
            status, stdout, stderr = result.returncode, result.stdout, result.stderr
        except ranks.TimedOut as error:
            stdout, stderr = error.output, error.stderr
            places = {
                rank: f"line {line}: {code[line - 1].strip()}" if line else "start"
                for rank, line in error.places.items()
            }
        events = [
            [json.loads(line) for line in found.read_text().splitlines()]
            for found in (folder / f"rank{rank}" for rank in range(count or 1))
            if found.exists()
        ]
        metrics, model = out / "metrics.csv", out / "model.pth"
        try:
            rows = compare.read(metrics) if metrics.exists() else []
            weights = torch.load(model) if model.exists() else None
        except (ValueError, KeyError, TypeError, RuntimeError, OSError, PickleError):
            rows, weights = [], None
        return observe.Seen(
            events=events, status=status, stdout=stdout, stderr=stderr, places=places,
            rows=rows, weights=weights, out=out, path=str(path), text=text,
        )  # fmt: skip


def ended(seen):
    """Raise Wrong unless the run ended well."""
    if seen.places:
        where = "\n".join(
            f"  rank {rank} is at {at}" for rank, at in seen.places.items()
        )
        raise Wrong(f"The run hangs: after {LIMIT} seconds\n{where}")
    if seen.status:
        raise Wrong(f"The run fails: {seen.error()}")


def weights(seen):
    """Return the tensors of model.pth. Raises Wrong where there are none."""
    ended(seen)
    if not isinstance(seen.weights, dict) or not seen.weights:
        raise Wrong("There is no model.pth that holds a state_dict.")
    return seen.weights


def learns(seen, epochs=EPOCHS):
    """Raise Wrong unless metrics.csv has all epochs, and the loss falls."""
    ended(seen)
    if len(seen.rows) != epochs:
        raise Wrong(f"metrics.csv has {len(seen.rows)} epochs, expected {epochs}.")
    if not seen.rows[-1][0] < seen.rows[0][0]:
        raise Wrong(
            "The loss does not fall: " + ", ".join(f"{r[0]:.4f}" for r in seen.rows)
        )


def same_curve(seen, expected, what="one process"):
    """Raise Wrong unless losses and counts are those of another run."""
    ended(seen)
    ended(expected)
    if len(seen.rows) != len(expected.rows):
        raise Wrong(
            f"metrics.csv has {len(seen.rows)} epochs, not {len(expected.rows)}."
        )
    for epoch, (ours, theirs) in enumerate(
        zip(seen.rows, expected.rows, strict=True), 1
    ):
        if abs(ours[0] - theirs[0]) > CLOSE * abs(theirs[0]):
            raise Wrong(
                f"The loss of epoch {epoch} is {ours[0]:.6f}; that of {what} is "
                f"{theirs[0]:.6f}."
            )
        if ours[1:] != theirs[1:]:
            raise Wrong(
                f"Epoch {epoch} counts {ours[1]} of {ours[2]} test images as correct; "
                f"{what} counts {theirs[1]} of {theirs[2]}."
            )


def equal_weights(seen):
    """Raise Wrong unless all ranks have the same weights after every step."""
    digests = [
        [e["digest"] for e in seen.of("step", r)] for r in range(len(seen.events))
    ]
    if not digests[0]:
        raise Wrong("No rank has taken a step of its optimizer.")
    for rank, steps in enumerate(digests[1:], start=1):
        if len(steps) != len(digests[0]):
            raise Wrong(
                f"Rank {rank} took {len(steps)} steps, rank 0 {len(digests[0])}."
            )
        apart = [
            n
            for n, (a, b) in enumerate(zip(digests[0], steps, strict=True), 1)
            if a != b
        ]
        if apart:
            raise Wrong(
                f"After step {apart[0]} the weights of rank {rank} differ from those of "
                "rank 0: each trains a network of its own."
            )


def shared_out(seen, train=TRAIN):
    """Raise Wrong unless in every epoch each training image is used by one rank, once."""
    ended(seen)
    for epoch in range(EPOCHS):
        parts = []
        for rank in range(len(seen.events)):
            epochs = seen.epochs(rank)
            if len(epochs) != EPOCHS:
                raise Wrong(f"Rank {rank} goes through its images {len(epochs)} times.")
            parts.append([index for batch in epochs[epoch] for index in batch])
        for rank, part in enumerate(parts[1:], start=1):
            common = len(set(part) & set(parts[0]))
            if common:
                raise Wrong(
                    f"In epoch {epoch + 1} rank {rank} trained on {common} images that "
                    f"rank 0 trained on too (of its {len(part)})."
                )
        found = {index for part in parts for index in part}
        if len(found) != train:
            raise Wrong(
                f"In epoch {epoch + 1} the ranks together saw {len(found)} of {train} "
                "training images."
            )


def exercises():
    """Return all exercises, in order."""
    folders = sorted(path.parent for path in EXERCISES.glob("*/exercise.md"))
    return [Exercise(folder) for folder in folders]


def find(text):
    """Return the exercise that a person means by `4`, `04` or `04_name`."""
    for exercise in exercises():
        if text in (exercise.number, exercise.number.lstrip("0"), exercise.folder.name):
            return exercise
    refuse(
        f"there is no exercise {text!r}: 'make exercises' lists them, E=04 names one"
    )


def listed():
    """Print the list of exercises."""
    for exercise in exercises():
        state = "done" if (exercise.workshop / ".done").exists() else ""
        if not state and exercise.workshop.exists():
            state = "begun"
        print(f"{exercise.number}  {exercise.stage:18} {exercise.minutes:3} min  "
              f"{state:5}  {exercise.title}")  # fmt: skip
    print("\nmake exercise E=01 begins one")


def begin(exercise):
    """Put the broken script and its page into workshop/."""
    path = exercise.workshop / "mnist.py"
    if path.exists():
        refuse(
            f"{data.shown(path)} is there already, and yours: go on with it, or "
            f"throw it away by 'make reset E={exercise.number}'"
        )
    exercise.workshop.mkdir(parents=True, exist_ok=True)
    page = exercise.text.split("\n## Hints")[0].rstrip() + "\n"
    (exercise.workshop / "README.md").write_text(page)
    path.write_text(exercise.script("start"))
    print(f"{exercise.title}\n")
    print(exercise.chapter("What you observe"))
    print(f"\n{exercise.chapter('Your task')}\n")
    number = exercise.number
    command = f"{data.shown(path)} --data data/sample"
    if exercise.stage in DISTRIBUTED:
        command = f".venv/bin/torchrun --standalone --nproc-per-node=2 {command}"
    else:
        command = f".venv/bin/python {command}"
    print(f"Run it yourself: OMP_NUM_THREADS=1 {command}")
    print(f"Edit {data.shown(path)}, then: make check E={number}"
          f"   (stuck? make hint E={number})")  # fmt: skip


def begun(exercise):
    """Return the learner's script; refuses where there is none yet."""
    path = exercise.workshop / "mnist.py"
    if not path.exists():
        refuse(
            f"exercise {exercise.number} has not begun: 'make exercise E={exercise.number}'"
        )
    return path


def check(exercise):
    """Judge the learner's script, print the verdict, and remember it in .done."""
    path = begun(exercise)
    try:
        exercise.check(path.read_text())
    except Wrong as why:
        (exercise.workshop / ".done").unlink(missing_ok=True)
        refuse(f"Not yet. {why}")
    (exercise.workshop / ".done").touch()
    print(f"Solved: {exercise.title}")
    print(f"Where people met it: {exercise.chapter('Where people met it')}")


def hint(exercise):
    """Print the next hint; after the last one, all of them."""
    begun(exercise)
    counter = exercise.workshop / ".hints"
    hints = exercise.hints()
    given = len(counter.read_text()) if counter.exists() else 0
    counter.write_text("x" * min(given + 1, len(hints)))
    for number, text in enumerate(hints[: given + 1], start=1):
        print(f"{number} of {len(hints)}: {text}")
    if given >= len(hints):
        print(
            f"That was the last one; 'make solution E={exercise.number}' shows the diff."
        )


def solution(exercise):
    """Print the diff from the broken script to the solution."""
    import difflib

    from tools.diffs import colour

    name = f"workshop/{exercise.folder.name}/mnist.py"
    old, new = (exercise.script(n).splitlines() for n in ("start", "solution"))
    for line in difflib.unified_diff(old, new, name, "solution", lineterm=""):
        print(colour(line) if sys.stdout.isatty() else line)


def reset(exercise):
    """Throw the learner's folder away."""
    if exercise.workshop.exists():
        shutil.rmtree(exercise.workshop)
    print(f"exercise {exercise.number} is new again: make exercise E={exercise.number}")


def main():
    actions = {"begin": begin, "check": check, "hint": hint, "solution": solution,
               "reset": reset}  # fmt: skip
    action, *names = [word for word in sys.argv[1:] if word]
    if action == "list":
        listed()
    elif not names:
        refuse("which exercise? E=04, say; 'make exercises' lists them")
    else:
        actions[action](find(names[0]))


if __name__ == "__main__":
    from tools import lab  # noqa: PLW0406 - the checks import it, and raise its Wrong

    lab.main()
