"""How a script of the lab is run, by a check or by `make try`: `Setting`."""

from dataclasses import asdict, dataclass

from tools.run.stages import BY_NAME, CPU_PROCESSES, refuse

# As a check runs a script: small, and in float64, which has other initial weights.
SMALL = {"train": 512, "test": 101, "epochs": 2, "float64": True}
# Another number of ranks and of images than a page has, which a script has to fit, too:
# 165 images a rank are ten batches of 16, and one of 5. The ranks have 34, 34 and 33
# test images.
THREE_RANKS = {"processes": 3, "batch": 48, "train": 495}
# The same for the second curve, which is in float64 anyway.
FEW_STEPS = {"batch": 12, "steps": 4}


@dataclass(frozen=True, kw_only=True)
class Setting:
    """How a script is run."""

    processes: int  # ranks; 0: one process, without torchrun
    train: int = 4000  # images; these are all of data/sample
    test: int = 1000  # images
    batch: int = 64  # images per step, of all ranks together
    epochs: int = 3  # with those before it resumes
    steps: int = 0  # of a script of the second curve, whose batch has sequences
    flags: tuple = ()  # further ones of the script
    resume: int = 0  # epochs that a first run trains, before one with --resume
    fake: str = ""  # the name of a function of tools.lab.fake_cuda
    float64: bool = False

    def beside(self, other):
        """Return fields that differ from another setting's, for `make try WITH=`.

        Flags that name a file are left out, since that run's files are gone.
        """
        theirs = asdict(other)
        words = []
        for name, value in asdict(self).items():
            if name == "flags":
                value = ",".join(str(flag) for flag in value)
                theirs[name] = ",".join(str(flag) for flag in theirs[name])
            if value != theirs[name] and "/" not in str(value):
                words.append(f"{name}={value}")
        return " ".join(words)

    def command_lines(self, *words):
        """Return each run's command line, which begins with words: two with resume."""
        words = [*words, "--batch-size", self.batch, *self.flags]
        if self.steps:
            return [[*words, "--steps", self.steps]]
        words.append("--epochs")
        if not self.resume:
            return [[*words, self.epochs]]
        return [[*words, self.resume], [*words, self.epochs, "--resume"]]

    def described(self):
        """Return in words how a script is run."""
        text = f"on {self.processes} ranks" if self.processes > 1 else "in one process"
        if self.fake:
            text += f", on fake hardware ({self.fake.replace('_', ' ')})"
        if self.steps:
            return f"{text}: {self.steps} steps of {self.batch} sequences"
        text += f": {self.train} training and {self.test} test images, "
        text += f"{self.batch} images a step, "
        text += f"{self.epochs} epochs" if self.epochs > 1 else "1 epoch"
        if self.resume:
            text += f", stopped and resumed after {self.resume}"
        return f"{text}, in float64" if self.float64 else text


def of_page(stage, **options):
    """Return the Setting in which pages describe a stage's script, but for options."""
    own = {"batch": 32, "steps": 90} if is_second(stage) else {}
    return Setting(**{"processes": CPU_PROCESSES.get(stage, 0)} | own | options)


def read_fields(text):
    """Return {field: value} of words such as `processes=3 batch=48`, or refuse them."""
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
    """Return the Setting in which a check runs a stage's script, but for options."""
    return of_page(stage, **(FEW_STEPS if is_second(stage) else SMALL) | options)


def is_second(stage):
    """Return whether a stage's curve is that of the transformer."""
    return BY_NAME[stage].room == "transformer"
