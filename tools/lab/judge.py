"""Run a learner's script as its exercise asks, and judge it."""

import functools
import tempfile
from pathlib import Path

import torch

from onecurve import ranks
from onecurve.seen import read_events
from tools.lab import recorder
from tools.lab.exercise import stage_text
from tools.lab.expectations import expect
from tools.lab.record import Limit, Record, Wrong
from tools.lab.setting import Setting
from tools.run import compare
from tools.run.sample import cut
from tools.run.stages import CPU_PROCESSES

LIMIT = 12  # seconds; a run takes one or two, and one that takes more hangs
WANTED = ["equal", "weights", "devices", "learns", "slow_is_wrong", "expect"]


def verdict(exercise, text):
    """Judge the text of a script.

    Returns in words what is wrong, or '', and the Setting of the run that showed it.
    """
    try:
        judge(exercise, text)
    except Limit as limit:
        own = "That is the lab's limit, and need not be your mistake."
        return f"{limit}\n{own}", limit.setting
    except Wrong as wrong:
        return str(wrong), wrong.setting
    return "", None


def judge(exercise, text):
    """Judge the text of a script.

    Raises Wrong with what is still wrong, the run that showed it, and the command that
    repeats this run; its `setting` is that of the run.
    """
    runs = Runs(exercise, text)
    check = exercise.load_check()
    try:
        if check:
            check.check(runs)
        for plan in exercise.runs:
            judge_run(runs, exercise.wanted | plan)
    except Wrong as wrong:
        raise runs.with_latest(wrong) from wrong
    except Exception as error:  # a learner cannot help it
        what = f"{type(error).__name__}: {error}"
        limit = Limit(f"The check met something that it does not expect ({what}).")
        raise runs.with_latest(limit) from error


def judge_run(runs, plan):
    """Judge a run that exercise.toml describes: options of `run_script`, and WANTED."""
    wanted = {name: plan[name] for name in plan if name in WANTED}
    options = {name: plan[name] for name in plan if name not in WANTED}
    flags = options.pop("flags", [])
    record = runs(*flags, **options)
    expect(record, runs, wanted, {"flags": flags, **options})


class Runs:
    """What a check gets: it runs the learner's script, and those to compare it with.

    Each method takes flags of the script and what `run_script` takes. Each returns a
    Record. `latest` is the one of the learner's latest run, or None.
    """

    def __init__(self, exercise, text):
        self.exercise = exercise
        self.text = text
        self.latest = None

    def __call__(self, *flags, **options):
        """Run the learner's script.

        Raises Wrong where it fails, or where the judge finds an error in it.
        """
        self.latest = run_script(self.text, self.exercise.stage, *flags, **options)
        self.latest.expect_end()
        self.latest.expect_no_finding()
        return self.latest

    def solution(self, *flags, **options):
        """Run the solution of the exercise."""
        return self.right(self.exercise.script("solution"), *flags, **options)

    def original(self, *flags, **options):
        """Run the script of the stage."""
        return self.right(stage_text(self.exercise.stage), *flags, **options)

    def equal(self, name, options):
        """Return the run that exercise.toml calls so, and what it is called in words.

        `options` are those of the learner's run, the script's flags among them.
        """
        options = dict(options)
        flags = options.pop("flags")
        if name == "stage":
            what = f"stage {int(self.exercise.stage[:2])}"
            return self.original(*flags, **options), what
        if name == "one":
            options |= {"processes": 1, "resume": 0, "fake": ""}
            return self.solution(*flags, **options), "one process"
        return self.solution(*flags, **options), "a right script"

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
    train=512,  # images
    test=101,  # images
    epochs=2,
    float64=True,
    **options,  # of Setting
):
    """Run the text of a script of a stage, and return a Record."""
    setting = Setting(
        processes=processes or CPU_PROCESSES.get(stage, 0),
        images=(train, test),
        epochs=epochs,
        flags=flags,
        float64=float64,
        **options,
    )
    return record_run(text, stage, setting, LIMIT)


def record_run(text, stage, setting, limit):
    """Run the text of a script, and return a Record; it hangs after `limit` seconds.

    With `resume`, the record is that of the second run, unless the first one fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder).resolve()
        out = folder / "out"
        path = folder / stage / "mnist.py"
        path.parent.mkdir()
        path.write_text(text, encoding="utf-8")
        data = cut(folder / "data", *setting.images)
        prepare = recorder.record, folder, str(path), setting.fake
        commands = setting.command_lines(path, "--data", data, "--out", out)
        result = run_until_one_fails(commands, setting, limit, prepare)
        count = setting.processes or 1
        return Record(
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
    """Return what a script has written to a folder, as the fields of a Record."""
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
