"""Run a learner's script as its exercise asks, and judge it.

What exercise.toml may ask of a run, besides what a Setting has:

equal     the run whose curve it has: "solution", "stage", or "one", which is the
          solution in one process
weights   whether model.pth is that run's, too
gradients  whether each step of the optimizer gets that run's gradient, too
devices   the fake GPUs on which layers train
learns    whether it is enough that the loss falls
slow_is_wrong  whether what only costs time is a mistake, too
expect    names of functions of expectations.py and images.py, for what nothing else
          shows

What a rule of the inspector finds says why something is wrong. It is no mistake by
itself where a curve is known: a script that has it may do things in its own way.
"""

import functools
import tempfile
from dataclasses import fields
from pathlib import Path

from onecurve import api
from tools.lab import expectations, images, recorder
from tools.lab.comparison import expect_curve, expect_gradients, expect_weights
from tools.lab.record import Limit, Record, Wrong
from tools.lab.setting import Setting, of_check, of_page
from tools.run.sample import cut
from tools.run.stages import BY_NAME

LIMIT = 12  # seconds; a run takes one or two, and one that takes more hangs
PATIENCE = 120  # seconds for a right script, which ends: the machine may be busy
FIELDS = [field.name for field in fields(Setting)]
OWN = "That is the lab's limit, and need not be your mistake."


def verdict(exercise, text):
    """Judge the text of a script: return in words what is wrong, or ''."""
    runs = Runs(exercise, text)
    limit = ""
    try:
        judge(runs)
        return ""
    except Wrong as wrong:
        told = str(wrong)
        limit = f"\n{OWN}" if isinstance(wrong, Limit) else ""
    except Exception as error:  # noqa: BLE001, a learner cannot help it
        what = f"{type(error).__name__}: {error}"
        told = f"The check met something that it does not expect ({what})."
        limit = f"\n{OWN}"
    if not runs.latest:
        return told + limit
    setting = runs.latest.setting
    told = told.replace(f"{runs.latest.out.parent}/", "")  # a temporary folder
    told += f"\nThat was {setting.described()}.\n"
    fields = setting.beside(of_page(exercise.stage, **exercise.tried))
    command = f"make try E={exercise.number}"
    if fields:
        command += f' WITH="{fields}"'
    return f"{told}Repeat it: {command}{limit}"


def judge(runs):
    """Raise Wrong where the script of Runs is wrong; Limit where the lab is."""
    try:
        judge_by_behavior(runs)
    except Limit:
        raise
    except Wrong:
        if runs.latest.ended_well:
            runs.latest.expect_no_finding()  # which may say why
        raise


def judge_by_behavior(runs):
    """Raise Wrong where a run is not what the exercise asks for."""
    exercise = runs.exercise
    check = exercise.load_check()
    if check:
        check.check(runs)
    for plan in exercise.runs:
        wanted = exercise.wanted | plan
        options = {name: wanted.pop(name) for name in plan if name in FIELDS}
        expect(runs(**options), runs, wanted, options)


def expect(record, runs, wanted, options):
    """Raise Wrong unless a record is what is wanted, of a run with these options."""
    for name in wanted.get("expect", "").split():
        module = images if hasattr(images, name) else expectations
        getattr(module, name)(record)
    if "devices" in wanted:
        record.expect_devices(*wanted["devices"])
    if wanted.get("learns"):
        record.expect_learning()
        record.expect_no_finding()
    if "equal" in wanted:
        right, what = runs.equal(wanted["equal"], options)
        expect_curve(record, right, what)
        if wanted.get("weights"):
            expect_weights(record, right, what)
        if wanted.get("gradients"):
            expect_gradients(record, right, what)
    if wanted.get("slow_is_wrong"):
        record.expect_no_finding("SLOW")


class Runs:
    """What a check gets: it runs the learner's script, and those to compare it with.

    Each method takes fields of a Setting, and returns a Record. `latest` is the one of
    the learner's latest run, or None.
    """

    def __init__(self, exercise, text):
        self.exercise = exercise
        self.text = text
        self.latest = None

    def __call__(self, **options):
        """Run the learner's script.

        Raises Wrong where it fails.
        """
        self.latest = run_script(self.text, self.exercise.stage, **options)
        self.latest.expect_end()
        return self.latest

    def solution(self, **options):
        """Run the solution of the exercise. Raises Limit where it fails here."""
        return self.right("solution", **options)

    def original(self, **options):
        """Run the script of the stage. Raises Limit where it fails here."""
        return self.right("stage", **options)

    def equal(self, name, options):
        """Return the run that exercise.toml calls so, and what it is called in words.

        `options` are those of the learner's run.
        """
        if name == "one":
            alone = options | {"processes": 1, "resume": 0, "fake": ""}
            return self.solution(**alone), "one process"
        stage = f"stage {int(self.exercise.stage[:2])}"
        words = {"stage": stage, "solution": "a right script"}
        return self.right(name, **options), words[name]

    def right(self, name, **options):
        """Run a script of the exercise that is right."""
        options["flags"] = tuple(options.get("flags", ()))
        text = self.exercise.script(name)
        record = run_once(text, self.exercise.stage, **options)
        try:
            record.expect_end()
        except Wrong as why:
            raise Limit(f"A right script cannot run here. {why}") from why
        return record


def run_script(text, stage, **options):
    """Run the text of a script as a check does, but for options of Setting."""
    return record_run(text, stage, of_check(stage, **options), LIMIT)


@functools.cache
def run_once(text, stage, **options):
    """Run a right script as `run_script` does; many answers are compared with it."""
    return record_run(text, stage, of_check(stage, **options), PATIENCE)


def record_run(text, stage, setting, limit):
    """Run the text of a script, and return a Record; it hangs after `limit` seconds.

    With `resume`, the record is that of the second run, unless the first one fails.
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
        for line in setting.command_lines(*words):
            result = api.run(
                line,
                setting.processes,
                setting.float64,
                timeout=limit,
                prepare=prepare,
            )
            if result.returncode:
                break
        events = api.read_ranks(folder, setting.processes or 1)
        return Record(events, result, out, text, setting, limit)
