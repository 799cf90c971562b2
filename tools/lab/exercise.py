"""An exercise of the break-it lab is a folder exercises/NN_name:

    exercise.md     title, stage, minutes; what you observe; your task; hints; source
    start.patch     the script that the learner gets
    solution.patch  a solution
    answers.diff    right and wrong answers that the check is tried on: tools.lab.answers
    check.py        check(run): raises Wrong where the script is still wrong

Patches are against the script of the stage, so that an exercise cannot drift away from
it; one that is missing changes nothing, so the script is that of the stage.
"""

import contextlib
import functools
import json
import re
import subprocess
import tempfile
from pathlib import Path

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
            own = self.folder / "rewritten.py"
            shared = EXERCISES / "rewritten" / f"{self.stage}.py"
            return (own if own.exists() else shared).read_text()
        path = self.folder / f"{name}.patch"
        original = stage_text(self.stage)
        return patched(original, path, self.stage) if path.exists() else original

    def answers(self):
        """Return what answers.diff has, see answers.parse."""
        path = self.folder / "answers.diff"
        return answers.parse(path.read_text(), f"{self.folder.name}/answers.diff")

    def settings(self):
        """Return how `make try` runs a script: TRY in check.py, see commands.attempt.

        It may have `processes`, `flags`, and `fake`, the name of a function of
        tools.lab.fake_cuda.
        """
        return getattr(load_file("check", self.folder / "check.py"), "TRY", {})

    def check(self, text):
        """Judge the text of a script. Raises Wrong with what is still wrong."""
        run, run.solution, run.original = (
            functools.partial(observed, each, self.stage)
            for each in (text, self.script("solution"), stage_text(self.stage))
        )
        try:
            load_file("check", self.folder / "check.py").check(run)
        except checks.Wrong:
            raise
        except Exception as error:  # a learner cannot help it
            checks.ended(run())
            what = f"{type(error).__name__}: {error}"
            raise checks.Limit(
                f"The check met something that it does not expect ({what})."
            ) from error


@functools.cache
def committed(stage):
    """Return the text of a stage's script as committed, or None where git has none."""
    path = script(stage)
    words = ["git", "show", f"HEAD:./{path.name}"]
    try:
        shown = subprocess.run(words, cwd=path.parent, capture_output=True)
    except FileNotFoundError:
        return None
    return shown.stdout.decode() if shown.returncode == 0 else None


def stage_text(stage):
    """Return the script that exercises build on: a learner's edit of it does no harm."""
    return committed(stage) or script(stage).read_text()


def patched(original, path, stage):
    """Return the text of a stage with the patch in a file.

    Raises ValueError where it does not apply.
    """
    (patch,) = whatthepatch.parse_patch(path.read_text())
    try:
        lines = whatthepatch.apply_diff(patch, original)
    except whatthepatch.exceptions.WhatThePatchException as error:
        raise ValueError(f"{path} does not apply to {stage}: {error}") from None
    return "\n".join(lines) + "\n"


@functools.cache  # many exercises are held against the same run
def observed(text, stage, *flags, processes=None, train=TRAIN, test=TEST, batch=None,
             epochs=EPOCHS, fake=None, reductions=False, float64=True,
             resume=0):  # fmt: skip
    """Run the text of a script and return what was seen of it, a RunRecord.

    `train` and `test` are the numbers of images, `batch` those of a step on all ranks.
    With `resume`, a script that has --resume (of stage 11 or 12) trains so many epochs
    first. Then it runs again with --resume, and what is seen is of that run, where the
    first one ends well.
    """
    import torch  # here, so that what runs nothing answers at once

    from tools.lab import recorder
    from tools.lab.run_record import RunRecord
    from tools.run import ranks

    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder).resolve()
        path, out = folder / stage / "mnist.py", folder / "out"
        path.parent.mkdir()
        path.write_text(text, encoding="utf-8")
        words = [path, "--data", cut(folder / "data", train, test), "--out", out]
        words += ["--batch-size", batch] if batch else []
        runs = [[*words, "--epochs", epochs, *flags]]
        if resume:
            runs = [[*words, "--epochs", resume, *flags], [*runs[0], "--resume"]]
        count = processes or CPU_PROCESSES.get(stage, 0)
        prepare = recorder.record, folder, str(path), fake, reductions
        late = False
        for words in runs:
            try:
                ended = ranks.run(words, count, float64, checks.LIMIT, prepare)
            except ranks.TimedOut as error:
                ended, late = error, True
            if late or ended.returncode:
                break
        seen = RunRecord(
            events=[events(folder / f"rank{rank}") for rank in range(count or 1)],
            status=1 if late else ended.returncode, hangs=late, stdout=ended.stdout,
            stderr=ended.stderr, statuses=ended.statuses, errors=ended.errors,
            places=ended.places, rows=[], weights=None, needs_gpu=False, unread={},
            out=out, path=str(path), text=text, count=epochs - resume,
        )  # fmt: skip
        for name, into, read in (
            ("metrics.csv", "rows", compare.read),
            ("model.pth", "weights", functools.partial(torch.load, map_location="cpu")),
        ):
            if (out / name).exists():
                try:
                    setattr(seen, into, read(out / name))
                except Exception as error:  # noqa: BLE001, whatever is there
                    seen.unread[name] = (str(error).splitlines() or ["it is empty"])[0]
        if seen.weights is not None:
            try:
                torch.load(out / "model.pth")
            except RuntimeError:  # its tensors say that they are on a GPU
                seen.needs_gpu = True
        return seen


def events(path):
    """Return what a rank has written; the last line may be torn."""
    if not path.exists():
        return []
    found = []
    for line in path.read_text().splitlines():
        with contextlib.suppress(ValueError):
            found.append(json.loads(line))
    return found


def exercises():
    """Return all exercises, in order."""
    folders = sorted(path.parent for path in EXERCISES.glob("*/exercise.md"))
    return [Exercise(folder) for folder in folders]
