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

from dataclasses import fields

from tools.lab import expectations, images
from tools.lab.comparison import expect_curve, expect_gradients, expect_weights
from tools.lab.record import Limit, Wrong
from tools.lab.running import PATIENCE, RECORDS, Job, Running, record_of
from tools.lab.setting import Setting, of_check, of_page, varied

LIMIT = 12  # seconds until a run counts as hanging; most take one or two
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
        if not runs.latest.hangs and not runs.latest.status:
            untold = runs.exercise.wanted.get("untold", "").split()
            runs.latest.expect_no_finding(untold)  # may explain why
        raise
    finally:
        for running in runs.begun.values():  # nobody asked for these
            running.end()


def judge_by_behavior(runs):
    """Raise Wrong unless each run meets the exercise's requirements."""
    exercise = runs.exercise
    plans = []
    for plan in exercise.runs:
        wanted = exercise.wanted | plan
        options = {name: wanted.pop(name) for name in plan if name in FIELDS}
        if plans:  # the later runs also vary what no task mentions
            options = varied(exercise.stage, **options)
        plans.append((options, wanted))
    for some in plans[:1], plans[1:]:  # the first finds most mistakes
        runs.begin(some)
        for options, wanted in some:
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
        self.begun = {}  # {Job: Running}

    def begin(self, plans):
        """Begin the runs that plans, (options, requirements), will ask for."""
        for options, wanted in plans:
            jobs = [self.own_job(options)]
            if wanted.get("equal"):
                setting = jobs[0].setting
                jobs.append(self.right_job(*self.beside(wanted["equal"], setting)))
            for job in jobs:
                if job not in RECORDS and job not in self.begun:
                    self.begun[job] = Running(job)

    def __call__(self, **options):
        """Run the learner's script. Raises Wrong if it fails."""
        self.latest = record_of(self.own_job(options), self.begun)
        self.latest.expect_end()
        return self.latest

    def solution(self, **options):
        """Run the solution. Raises Limit if it fails here."""
        return self.right("solution", options)

    def original(self, **options):
        """Run the stage's script. Raises Limit if it fails here."""
        return self.right("stage", options)

    def equal(self, name, setting):
        """Return the run for `equal`, given the learner's setting, and its title."""
        stage = f"stage {int(self.exercise.stage[:2])}"
        words = {"stage": stage, "solution": "a correct script", "one": "one process"}
        return self.right(*self.beside(name, setting)), words[name]

    def beside(self, name, setting):
        """Return the script for `equal` and the options to run it with."""
        options = vars(setting)
        if name != "one":
            return name, options
        alone = {"processes": 1, "first": 0, "resume": 0, "fake": ""}
        return "solution", options | alone

    def right(self, name, options):
        """Run one of the exercise's correct scripts, in an empty folder."""
        record = record_of(self.right_job(name, options), self.begun)
        try:
            record.expect_end()
        except Wrong as why:
            raise Limit(f"A correct script can't run here. {why}") from why
        return record

    def own_job(self, options):
        setting = of_check(self.exercise.stage, **options)
        return Job(self.text, self.exercise.stage, setting, LIMIT)

    def right_job(self, name, options):
        setting = of_check(self.exercise.stage, **options | {"before": ()})
        return Job(self.exercise.script(name), self.exercise.stage, setting, PATIENCE)
