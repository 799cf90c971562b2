"""Run a learner's script as the check of its exercise asks, and judge it."""

import functools
import tempfile
from pathlib import Path

import torch

from onecurve import ranks
from onecurve.events import read_events
from tools.lab import checks, image_recorder
from tools.lab.checks import EPOCHS, TEST, TRAIN, JudgedRun
from tools.lab.exercise import stage_text
from tools.lab.run_record import Limit, Wrong
from tools.lab.setting import Setting
from tools.run import compare
from tools.run.sample import cut
from tools.run.stages import CPU_PROCESSES


def judge(exercise, text):
    """Judge the text of a script.

    Raises Wrong with what is still wrong, the run that showed it, and the command that
    repeats this run; its `setting` is that of the run.
    """
    runs = Runs(exercise, text)
    try:
        exercise.load_check().check(runs)
    except Wrong as wrong:
        raise runs.with_latest(wrong) from wrong
    except Exception as error:  # a learner cannot help it
        what = f"{type(error).__name__}: {error}"
        limit = Limit(f"The check met something that it does not expect ({what}).")
        raise runs.with_latest(limit) from error


class Runs:
    """What a check gets: it runs the learner's script, and those to compare it with.

    Each method takes flags of the script and what `run_script` takes. Each returns a
    JudgedRun. `latest` is the one of the learner's latest run, or None.
    """

    def __init__(self, exercise, text):
        self.exercise = exercise
        self.text = text
        self.latest = None

    def __call__(self, *flags, may_fail=False, **options):
        """Run the learner's script. Raises Wrong where it fails, unless it may."""
        self.latest = run_script(self.text, self.exercise.stage, *flags, **options)
        if not may_fail:
            self.latest.expect_end()
        return self.latest

    def solution(self, *flags, **options):
        """Run the solution of the exercise."""
        return self.right(self.exercise.script("solution"), *flags, **options)

    def original(self, *flags, **options):
        """Run the script of the stage."""
        return self.right(stage_text(self.exercise.stage), *flags, **options)

    def right(self, text, *flags, **options):
        """Run a script that is right. Raises Limit where it fails on this machine."""
        record = run_script(text, self.exercise.stage, *flags, **options)
        try:
            record.expect_end()
        except Wrong as why:
            raise Limit(f"A right script cannot run here. {why}") from why
        return record

    def with_latest(self, wrong):
        """Return a Wrong with the learner's latest run, and how to repeat it."""
        if self.latest is None:
            return wrong
        folder = f"{self.latest.out.parent}/"  # a temporary one
        setting = self.latest.setting
        told = type(wrong)(
            f"{str(wrong).replace(folder, '')}\nThat was {setting.described()}.\n"
            f"Repeat it: make try E={self.exercise.number} LAST=1"
        )
        told.setting = setting
        return told


@functools.cache  # many answers are compared with the same run
def run_script(
    text,
    stage,
    *flags,
    processes=None,  # ranks; None: as many as the stage has on a CPU
    train=TRAIN,  # images
    test=TEST,  # images
    epochs=EPOCHS,
    float64=True,
    **options,  # of Setting
):
    """Run the text of a script of a stage, and return a JudgedRun."""
    setting = Setting(
        processes=processes or CPU_PROCESSES.get(stage, 0),
        images=(train, test),
        epochs=epochs,
        flags=flags,
        float64=float64,
        **options,
    )
    return record_run(text, stage, setting, checks.LIMIT)


def record_run(text, stage, setting, limit):
    """Run the text of a script, and return a JudgedRun; it hangs after `limit` seconds.

    With `resume`, the record is that of the second run, unless the first one fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder).resolve()
        out = folder / "out"
        path = folder / stage / "mnist.py"
        path.parent.mkdir()
        path.write_text(text, encoding="utf-8")
        data = cut(folder / "data", *setting.images)
        prepare = image_recorder.record, folder, str(path), setting.fake
        commands = setting.command_lines(path, "--data", data, "--out", out)
        result = run_until_one_fails(commands, setting, limit, prepare)
        count = setting.processes or 1
        return JudgedRun(
            events=[read_events(folder / f"rank{rank}") for rank in range(count)],
            result=result,
            out=out,
            text=text,
            setting=setting,
            **read_results(out),
        )


def run_until_one_fails(commands, setting, limit, prepare):
    """Run command lines in turn; return ranks.run's last result, or its TimedOut."""
    for words in commands:
        try:
            result = ranks.run(
                words, setting.processes, setting.float64, limit, prepare
            )
        except ranks.TimedOut as error:
            return error
        if result.returncode:
            break
    return result


def read_results(out):
    """Return what a script has written to a folder, as the fields of a JudgedRun."""
    locations = []
    unread = {}

    def to_cpu(storage, location):
        """Take a storage of model.pth, which says where it was, to the CPU."""
        locations.append(location)
        return storage

    def read(name, function, **options):
        """Return what a function returns for a file, or None, and the reason."""
        path = out / name
        if not path.exists():
            return None
        try:
            return function(path, **options)
        except Exception as error:  # noqa: BLE001, whatever a script has written there
            lines = str(error).splitlines()
            unread[name] = lines[0] if lines else "it is empty"
            return None

    return {
        "rows": read("metrics.csv", compare.read) or [],
        "weights": read("model.pth", torch.load, map_location=to_cpu),
        "locations": locations,
        "unread": unread,
    }
