"""How a script of the lab is run, by a check or by `make try`: `Setting`."""

import json
from dataclasses import asdict, dataclass

# As a check runs a script: small, and in float64, which has other initial weights.
SMALL = {"train": 512, "test": 101, "epochs": 2, "float64": True}
# Another number of ranks and of images than a page has, which a script has to fit, too:
# 165 images a rank are ten batches of 16, and one of 5. The ranks have 34, 34 and 33
# test images.
THREE_RANKS = {"processes": 3, "batch": 48, "train": 495}


@dataclass(frozen=True, kw_only=True)
class Setting:
    """How a script is run."""

    processes: int  # ranks; 0: one process, without torchrun
    train: int = 4000  # images; these are all of data/sample
    test: int = 1000  # images
    batch: int = 64  # images per step, of all ranks together
    epochs: int = 3  # with those before it resumes
    flags: tuple = ()  # further ones of the script
    resume: int = 0  # epochs that a first run trains, before one with --resume
    fake: str = ""  # the name of a function of tools.lab.fake_cuda
    float64: bool = False

    def save(self, path):
        """Write the setting to a file, for `make try LAST=1`."""
        path.write_text(json.dumps(asdict(self), default=str))

    def command_lines(self, *words):
        """Return each run's command line, which begins with words: two with resume."""
        words = [*words, "--batch-size", self.batch, *self.flags, "--epochs"]
        if not self.resume:
            return [[*words, self.epochs]]
        return [[*words, self.resume], [*words, self.epochs, "--resume"]]

    def described(self):
        """Return in words how a script is run."""
        text = f"on {self.processes} ranks" if self.processes > 1 else "in one process"
        if self.fake:
            text += f", on fake hardware ({self.fake.replace('_', ' ')})"
        text += f": {self.train} training and {self.test} test images, "
        text += f"{self.batch} images a step, "
        text += f"{self.epochs} epochs" if self.epochs > 1 else "1 epoch"
        if self.resume:
            text += f", stopped and resumed after {self.resume}"
        return f"{text}, in float64" if self.float64 else text
