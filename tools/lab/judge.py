"""Run a learner's script as the check of its exercise asks, and judge it."""

import contextlib
import functools
import json
import tempfile
from pathlib import Path

import torch

from tools.lab import checks, fake_cuda, recorder
from tools.lab.checks import EPOCHS, TEST, TRAIN
from tools.lab.exercise import stage_text
from tools.lab.run_record import RunRecord
from tools.lab.setting import FAKES, Setting
from tools.run import compare, ranks
from tools.run.sample import cut
from tools.run.stages import CPU_PROCESSES


def judge(exercise, text):
    """Judge the text of a script.

    Raises Wrong with what is still wrong, the run that showed it, and the command that
    repeats this run; its `setting` is that of the run.
    """
    runs = Runs(exercise, text)
    check = exercise.load_check().check
    try:
        check_or_limit(check, runs)
    except checks.Wrong as wrong:
        told = type(wrong)(runs.with_latest(str(wrong)))
        told.setting = runs.latest and runs.latest.setting
        raise told from wrong


def check_or_limit(check, runs):
    """Do a check; what it does not expect is the lab's limit, unless a run fails."""
    try:
        check(runs)
    except checks.Wrong:
        raise
    except Exception as error:  # a learner cannot help it
        checks.ended(runs())
        what = f"{type(error).__name__}: {error}"
        raise checks.Limit(
            f"The check met something that it does not expect ({what})."
        ) from error


class Runs:
    """What a check gets: it runs the learner's script, and those to compare it with.

    Each method takes flags of the script and what `run_script` takes. Each returns a
    RunRecord. `latest` is the one of the learner's latest run, or None.
    """

    def __init__(self, exercise, text):
        self.exercise = exercise
        self.stage = exercise.stage
        self.text = text
        self.solution_text = exercise.script("solution")
        self.original_text = stage_text(exercise.stage)
        self.latest = None

    def __call__(self, *flags, **options):
        """Run the learner's script."""
        self.latest = run_script(self.text, self.stage, *flags, **options)
        return self.latest

    def solution(self, *flags, **options):
        """Run the solution of the exercise."""
        return run_script(self.solution_text, self.stage, *flags, **options)

    def original(self, *flags, **options):
        """Run the script of the stage."""
        return run_script(self.original_text, self.stage, *flags, **options)

    def with_latest(self, message):
        """Return a message with the learner's latest run, and how to repeat it."""
        if self.latest is None:
            return message
        folder = f"{self.latest.out.parent}/"  # a temporary one
        setting = self.latest.setting
        return (
            f"{message.replace(folder, '')}\nThat was {setting.described()}.\n"
            f"Repeat it: {setting.make_try(self.exercise)}"
        )


@functools.cache  # many answers are compared with the same run
def run_script(
    text,
    stage,
    *flags,
    processes=None,  # ranks; None: as many as the stage has on a CPU
    train=TRAIN,  # images
    test=TEST,  # images
    batch=64,  # images per step, of all ranks together
    epochs=EPOCHS,
    fake=None,  # a function of tools.lab.fake_cuda
    reductions=False,  # record the reductions of DDP, too
    float64=True,
    **options,  # of Setting
):
    """Run the text of a script of a stage, and return a RunRecord."""
    setting = Setting(
        processes=processes or CPU_PROCESSES.get(stage, 0),
        images=(train, test),
        batch=batch,
        epochs=epochs,
        flags=flags,
        fake=next((name for name in FAKES if getattr(fake_cuda, name) is fake), ""),
        float64=float64,
        **options,
    )
    return record_run(text, stage, setting, checks.LIMIT, reductions)


def record_run(text, stage, setting, limit, reductions=False):
    """Run the text of a script, and return a RunRecord; it hangs after `limit` seconds.

    With `resume`, the record is that of the second run, unless the first one fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder).resolve()
        out = folder / "out"
        path = folder / stage / "mnist.py"
        path.parent.mkdir()
        path.write_text(text, encoding="utf-8")
        data = cut(folder / "data", *setting.images)
        fake = getattr(fake_cuda, setting.fake) if setting.fake else None
        prepare = recorder.record, folder, str(path), fake, reductions
        commands = setting.command_lines(path, "--data", data, "--out", out)
        result, hangs = run_until_one_fails(commands, setting, limit, prepare, out)
        count = setting.processes or 1
        return RunRecord(
            events=[read_events(folder / f"rank{rank}") for rank in range(count)],
            status=1 if hangs else result.returncode,
            hangs=hangs,
            stdout=result.stdout,
            stderr=result.stderr,
            statuses=result.statuses,
            errors=result.errors,
            places=result.places,
            out=out,
            path=str(path),
            text=text,
            setting=setting,
            **read_results(out),
        )


def run_until_one_fails(commands, setting, limit, prepare, out):
    """Run command lines in turn; return ranks.run's last result, and if it hangs."""
    for words in commands:
        try:
            result = ranks.run(
                words, setting.processes, setting.float64, limit, prepare
            )
        except ranks.TimedOut as error:
            return error, True
        if result.returncode:
            break
        if words is not commands[-1]:
            setting.delete_others(out)
    return result, False


def read_events(path):
    """Return the events that a rank has written; the last line may be torn."""
    if not path.exists():
        return []
    found = []
    for line in path.read_text().splitlines():
        with contextlib.suppress(ValueError):
            found.append(json.loads(line))
    return found


def read_results(out):
    """Return what a script has written to a folder, as the fields of a RunRecord."""
    unread = {}

    def read(name, function):
        """Return what a function returns for a file, or None, and the reason."""
        path = out / name
        if not path.exists():
            return None
        try:
            return function(path)
        except Exception as error:  # noqa: BLE001, whatever a script has written there
            lines = str(error).splitlines()
            unread[name] = lines[0] if lines else "it is empty"
            return None

    rows = read("metrics.csv", compare.read) or []
    weights = read("model.pth", functools.partial(torch.load, map_location="cpu"))
    needs_gpu = False
    if weights is not None:
        try:
            torch.load(out / "model.pth")
        except RuntimeError:  # its tensors say that they are on a GPU
            needs_gpu = True
    return {"rows": rows, "weights": weights, "needs_gpu": needs_gpu, "unread": unread}
