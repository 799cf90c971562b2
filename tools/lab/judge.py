"""Run a learner's script as its exercise asks, and judge it.

exercise.toml may set the fields of a Setting and these requirements of a run:

equal          match the curve of "solution", "stage" or "one", the solution in one
               process
weights        also match that run's model.pth
gradients      also match that run's gradients, step by step
devices        train layers on these fake GPUs
learns         only reduce the loss
sharded        hold at most this many times an equal share of weights in each optimizer
expect         functions in expectations.py, images.py or the exercise's check.py
untold         findings that a correct script has, too

If the curve matches, an inspector's finding is no mistake: the script may do things in
its own way. If not, the finding may explain why.
"""

import functools
import tempfile
from dataclasses import fields
from pathlib import Path

from onecurve import api
from tools.lab import expectations, images, recorder
from tools.lab.comparison import expect_curve, expect_gradients, expect_weights
from tools.lab.record import Limit, Record, Wrong
from tools.lab.setting import Setting, of_check, of_page, varied
from tools.run.sample import cut
from tools.run.stages import BY_NAME

LIMIT = 12  # seconds until a run counts as hanging; most take one or two
PATIENCE = 120  # seconds for a correct script, since the machine may be busy
FIELDS = [field.name for field in fields(Setting)]
OWN = "This is a limit of the lab and may not be your mistake."


def verdict(exercise, text):
    """Judge a script; return what is wrong, or ''."""
    runs = Runs(exercise, text)
    limit = ""
    try:
        judge(runs)
        return ""
    except Wrong as wrong:
        told = str(wrong)
        limit = f"\n{OWN}" if isinstance(wrong, Limit) else ""
    except Exception as error:  # noqa: BLE001, not the learner's fault
        what = f"{type(error).__name__}: {error}"
        told = f"The check itself failed ({what})."
        limit = f"\n{OWN}"
    if not runs.latest:
        return told + limit
    setting = runs.latest.setting
    told = told.replace(f"{runs.latest.out.parent}/", "")  # a temporary folder
    told += f"\nThis run was {setting.described()}.\n"
    fields = setting.beside(of_page(exercise.stage, **exercise.tried))
    command = f"make try E={exercise.number}"
    if fields:
        command += f' WITH="{fields}"'
    return f"{told}Repeat it: {command}{limit}"


def judge(runs):
    """Raise Wrong if the learner's script is wrong, and Limit if the lab can't tell."""
    try:
        judge_by_behavior(runs)
    except Limit:
        raise
    except Wrong:
        if runs.latest.ended_well:
            untold = runs.exercise.wanted.get("untold", "").split()
            runs.latest.expect_no_finding(untold)  # may explain why
        raise


def judge_by_behavior(runs):
    """Raise Wrong unless each run meets the exercise's requirements."""
    exercise = runs.exercise
    for number, plan in enumerate(exercise.runs):
        wanted = exercise.wanted | plan
        options = {name: wanted.pop(name) for name in plan if name in FIELDS}
        if number:  # the later runs also vary what no task mentions
            options = varied(exercise.stage, **options)
        expect(runs(**options), runs, wanted)


def expect(record, runs, wanted):
    """Raise Wrong unless a record is as wanted."""
    for name in wanted.get("expect", "").split():
        if hasattr(runs.check, name):
            getattr(runs.check, name)(record, runs)
        else:
            module = images if hasattr(images, name) else expectations
            getattr(module, name)(record)
    if "sharded" in wanted:
        expectations.expect_sharded(record, wanted["sharded"])
    if "devices" in wanted:
        record.expect_devices(*wanted["devices"])
    if wanted.get("learns"):
        record.expect_learning()
        images.new_orders(record)
        record.expect_no_finding()
    if wanted.get("equal"):
        right, what = runs.equal(wanted["equal"], record.setting)
        expect_curve(record, right, what)
        if wanted.get("weights"):
            expect_weights(record, right, what)
        if wanted.get("gradients"):
            expect_gradients(record, right, what)


class Runs:
    """Runs the learner's script and those to compare it with, and returns Records.

    Options are fields of a Setting. `latest` records the learner's last run, or None.
    """

    def __init__(self, exercise, text):
        self.exercise = exercise
        self.text = text
        self.check = exercise.load_check()
        self.latest = None

    def __call__(self, **options):
        """Run the learner's script. Raises Wrong if it fails."""
        self.latest = run_script(self.text, self.exercise.stage, **options)
        self.latest.expect_end()
        return self.latest

    def solution(self, **options):
        """Run the solution. Raises Limit if it fails here."""
        return self.right("solution", **options)

    def original(self, **options):
        """Run the stage's script. Raises Limit if it fails here."""
        return self.right("stage", **options)

    def equal(self, name, setting):
        """Return the run for `equal`, given the learner's setting, and its title."""
        options = vars(setting)
        if name == "one":
            alone = options | {"processes": 1, "first": 0, "resume": 0, "fake": ""}
            return self.solution(**alone), "one process"
        stage = f"stage {int(self.exercise.stage[:2])}"
        words = {"stage": stage, "solution": "a correct script"}
        return self.right(name, **options), words[name]

    def right(self, name, **options):
        """Run one of the exercise's correct scripts, in an empty folder."""
        text = self.exercise.script(name)
        record = run_once(text, self.exercise.stage, **options | {"before": ()})
        try:
            record.expect_end()
        except Wrong as why:
            raise Limit(f"A correct script can't run here. {why}") from why
        return record


def run_script(text, stage, **options):
    """Run a script's source as a check does, except for these Setting fields."""
    return record_run(text, stage, of_check(stage, **options), LIMIT)


def run_once(text, stage, **options):
    """Run a correct script as `run_script` does; cached, to judge many answers."""
    return recorded_run(text, stage, of_check(stage, **options), PATIENCE)


def record_run(text, stage, setting, limit):
    """Run a script's source and return a Record; it hangs after `limit` seconds.

    With `resume`, the Record is the second run's, unless the first one fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder).resolve()
        out = folder / "out"
        path = folder / stage / BY_NAME[stage].file
        path.parent.mkdir()
        path.write_text(text, encoding="utf-8")
        prepare = recorder.record, folder, str(path), setting.fake
        words = [path, "--out", out]
        if not setting.steps:
            words += ["--data", cut(folder / "data", setting.train, setting.test)]
        *earlier, last = setting.command_lines(*words)
        for line in *earlier, last:
            processes = setting.processes
            if line is not last and setting.first:
                processes = setting.first
            last_step = setting.killed_after if line in earlier[-1:] else 0
            options = {"timeout": limit, "prepare": (*prepare, last_step)}
            result = api.run(line, processes, setting.float64, **options)
            if result.returncode and not last_step:
                break
        events = api.read_ranks(folder, processes or 1)
        return Record(events, result, out, text, setting, limit)


recorded_run = functools.cache(record_run)
