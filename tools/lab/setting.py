"""Setting: how a check or `make try` runs a script."""

import math
from dataclasses import asdict, dataclass

from tools.run.stages import BY_NAME, CPU_PROCESSES, refuse

# For checks: small and in float64, where initial weights differ from those in float32.
SMALL = {"train": 512, "test": 101, "epochs": 2, "float64": True}
# For checks of the second curve, which uses float64 anyway.
FEW_STEPS = {"batch": 12, "steps": 4}


@dataclass(frozen=True, kw_only=True)
class Setting:
    processes: int  # ranks; 0: one process without torchrun
    train: int = 4000  # images; all of data/sample
    test: int = 1000  # images
    batch: int = 64  # images per step on all ranks together; sequences with `steps`
    epochs: int = 3  # including those before it resumes
    steps: int = 0  # of a script of the second curve
    flags: tuple = ()  # more flags of the script
    resume: int = 0  # epochs of a first run, before one with --resume
    killed: bool = False  # whether that first run is killed in its next epoch
    first: int = 0  # ranks of that first run; 0: as many as later
    before: tuple = ()  # flags of an older run into the same folder, for one epoch
    fake: str = ""  # the name of a function of tools.lab.fake_cuda
    float64: bool = False

    def __post_init__(self):
        for name in "flags", "before":  # lists in exercise.toml; equal runs are cached
            object.__setattr__(self, name, tuple(getattr(self, name)))

    def beside(self, other):
        """Return fields that differ from another setting's, for `make try WITH=`.

        Flags with a path are skipped, since that run's files are gone.
        """
        theirs = asdict(other)
        words = []
        for name, value in asdict(self).items():
            if isinstance(value, tuple):
                value = ",".join(str(flag) for flag in value)
                theirs[name] = ",".join(str(flag) for flag in theirs[name])
            if value != theirs[name] and "/" not in str(value):
                words.append(f"{name}={value}")
        return " ".join(words)

    def command_lines(self, *words):
        """Return each run's command line, beginning with words."""
        words = [*words, "--batch-size", self.batch]
        if self.steps:
            return [[*words, *self.flags, "--steps", self.steps]]
        lines = []
        if self.before:
            lines.append([*words, *self.before, "--epochs", 1])
        words += [*self.flags, "--epochs"]
        if not self.resume:
            return [*lines, [*words, self.epochs]]
        first = self.epochs if self.killed else self.resume
        return [*lines, [*words, first], [*words, self.epochs, "--resume"]]

    @property
    def killed_after(self):
        """The step after which the first run is killed, 0 if it isn't."""
        epochs = self.resume if self.killed else 0
        return epochs * math.ceil(self.train / self.batch)

    def described(self):
        text = f"on {self.processes} ranks" if self.processes > 1 else "in one process"
        if self.fake:
            text += f", on fake hardware ({self.fake.replace('_', ' ')})"
        if self.steps:
            return f"{text}: {self.steps} steps of {self.batch} sequences"
        text += f": {self.train} training and {self.test} test images, "
        text += f"{self.batch} images a step, "
        text += f"{self.epochs} epochs" if self.epochs > 1 else "1 epoch"
        if self.resume:
            ended = "killed" if self.killed else "stopped"
            text += f", {ended} and resumed after {self.resume}"
        if self.first:
            text += f", begun on {self.first} rank{'s' * (self.first > 1)}"
        if self.before:
            text += f", after an older run with {' '.join(self.before)}"
        return f"{text}, in float64" if self.float64 else text


def of_page(stage, **options):
    """Return the Setting of a stage's pages, with these options changed."""
    own = {"batch": 32, "steps": 90} if is_second(stage) else {}
    return Setting(**{"processes": CPU_PROCESSES.get(stage, 0)} | own | options)


def read_fields(text):
    """Return {field: value} for a string such as `processes=3 batch=48`, or exit."""
    kinds = {name: type(value) for name, value in asdict(Setting(processes=0)).items()}
    found = {}
    for word in text.split():
        name, _, value = word.partition("=")
        kind = kinds.get(name)
        if kind is int and value.isdecimal():
            found[name] = int(value)
        elif kind is bool and value in ("True", "False"):
            found[name] = value == "True"
        elif kind is str:
            found[name] = value
        elif kind is tuple:
            found[name] = tuple(value.split(","))
        else:
            refuse(f"WITH has {word!r}: expected fields such as processes=3 batch=48")
    return found


def of_check(stage, **options):
    """Return the Setting of a check of a stage's script, with these options changed."""
    return of_page(stage, **(FEW_STEPS if is_second(stage) else SMALL) | options)


def varied(stage, flags=(), **options):
    """Return options of a run with another seed and rate, and a machine per rank."""
    rate = "0.002" if is_second(stage) else "0.07"
    flags = "--seed", "5", "--lr", rate, *flags  # the options' own come last and count
    return {"fake": "machines", **options, "flags": flags}


def is_second(stage):
    """Return whether a stage trains the transformer."""
    return BY_NAME[stage].room == "transformer"
