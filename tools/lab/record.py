"""A run of a learner's script that has ended, and what may be expected of it: `Record`.

Each of its methods `expect_...` raises Wrong where the script is wrong.
"""

import math
import re
from dataclasses import dataclass, field
from pathlib import Path

from onecurve import failures, rules
from onecurve.seen import Seen
from onecurve.supervisor import STOPPED
from tools.lab.setting import Setting

# Relative. The runs compute in float64, but a script may have float32 sums, and adds up
# to 16 steps. A mistake with one image in 512 moves a loss by more than 1e-4.
CLOSE = 1e-5
# How many details of a finding say what was seen, if others say why.
FACTS = {"weights": 1, "no_gradient": 0}
# Part of an error that is due to the lab, not to the script.
DUE_TO_LAB = r"NVIDIA|CUDA-enabled|Torch not compiled with|File too large|fake GPU"
DUE_TO_LAB += "|daemonic|CUDA driver"


class Wrong(Exception):
    """The script is still wrong: says what was seen, and what was expected.

    `setting` is that of the run that showed it, or None.
    """

    setting = None


class Limit(Wrong):
    """The lab cannot judge this script, which may be right: says why."""


@dataclass(kw_only=True, eq=False)
class Record(Seen):
    """What the ranks of a run have written down, and what the script has saved."""

    events: list  # of each rank a list of dicts, as tools.lab.recorder writes them
    result: object  # what onecurve.ranks.run returned, or the TimedOut that it raised
    out: Path  # where the run was told to write
    text: str  # of the script
    setting: Setting  # how the script was run
    rows: list = field(default_factory=list)  # metrics.csv: (loss, correct, total)
    weights: dict | None = None  # model.pth
    locations: list = field(default_factory=list)  # where its tensors were
    unread: dict = field(default_factory=dict)  # of those two: name -> why not read

    @property
    def hangs(self):
        """Return whether the run took too long."""
        return failures.is_late(self.result)

    @property
    def status(self):
        """Return 0 where all ranks ended well."""
        return 1 if self.hangs else self.result.returncode

    @property
    def stdout(self):
        """Return what the ranks printed."""
        return self.result.stdout

    def too_long(self):
        """Return in words that a run hangs, or was stopped, and where each rank was."""
        seconds = f"{self.result.timeout:g} seconds"
        told = f"hangs: for {seconds} no rank has got on"
        if self.result.why == STOPPED:
            told = (
                f"was stopped: a rank has computed for {seconds}, a right one for few"
            )
        return told + self.whereabouts()

    def whereabouts(self):
        """Return a line for each rank: where it was when the run was ended."""
        return failures.whereabouts(self.result, self.text, self)

    def error(self):
        """Return in words why the run failed; the folder of the run is left out."""
        told = failures.error(self.result, self.text, self)
        return told.replace(f"{self.out.parent}/", "")

    def expect_end(self):
        """Raise Wrong unless the run ended well; Limit where the lab cannot run it."""
        if self.hangs:
            raise Wrong(f"The run {self.too_long()}")
        if self.status:
            error = self.error()
            kind = Limit if re.search(DUE_TO_LAB, error) else Wrong
            raise kind(f"The run fails: {error}")

    def expect_no_finding(self, level="ERROR"):
        """Raise Wrong where a rule of the judge finds a mistake, of that level.

        Its cause and its repair are the learner's to find. A model that is split among
        ranks is not looked at.
        """
        if self.of("cannot_tell"):
            return
        for found in rules.findings(self):
            if found.level == level:
                what = found.what.replace(f"{self.out}/", "")
                line = failures.line_number(found.line)
                where = f"\n  at {failures.at(self.text, line)}" if line else ""
                facts = found.details[: FACTS.get(found.name)]
                details = "".join(f"\n  {detail}" for detail in facts)
                raise Wrong(f"{what[0].upper()}{what[1:]}.{where}{details}")

    def state_dict(self):
        """Return the tensors of model.pth. Raises Wrong where there is none."""
        reason = self.unread.get("model.pth")
        if reason:
            raise Wrong(f"model.pth cannot be read as a state_dict: {reason}")
        if not isinstance(self.weights, dict) or not self.weights:
            raise Wrong("There is no model.pth that holds a state_dict.")
        for name, value in self.weights.items():
            if hasattr(value, "to_local"):
                raise Wrong(f"{name} in model.pth is a DTensor: a shard of a tensor.")
        return self.weights

    def curve(self, epochs=None):
        """Return metrics.csv as rows. Raises Wrong unless it has all epochs."""
        reason = self.unread.get("metrics.csv")
        if reason:
            raise Wrong(f"metrics.csv cannot be read: {reason}.{self.lost_sum()}")
        if not self.rows and not self.of("step"):
            raise Wrong(
                "The run ends without an error, but it has not trained: no optimizer "
                "took a step, and metrics.csv has no epoch."
            )
        epochs = epochs or self.setting.epochs
        if len(self.rows) != epochs:
            raise Wrong(f"metrics.csv has {len(self.rows)} epochs, expected {epochs}.")
        return self.rows

    def expect_learning(self):
        """Raise Wrong unless a run has all epochs, the loss falls, and it has saved."""
        losses = [loss for loss, _, _ in self.curve()]
        if not losses[-1] < losses[0]:
            told = ", ".join(f"{loss:.4f}" for loss in losses)
            raise Wrong(f"The loss does not fall: {told}")
        self.state_dict()

    def expect_curve(self, expected, what="one process"):
        """Raise Wrong unless losses and counts are another run's, and it has saved."""
        rows = self.curve(len(expected.rows))
        for epoch, (ours, theirs) in enumerate(
            zip(rows, expected.rows, strict=True), start=1
        ):
            loss, correct, total = ours
            right_loss, right_correct, right_total = theirs
            if not math.isclose(loss, right_loss, rel_tol=CLOSE):  # nor is NaN
                raise Wrong(
                    f"The loss of epoch {epoch} is {loss:.6f}; that of {what} is "
                    f"{right_loss:.6f}.{self.lost_sum()}"
                )
            if (correct, total) != (right_correct, right_total):
                raise Wrong(
                    f"The count of epoch {epoch} is {correct} of {total}; that of "
                    f"{what} is {right_correct} of {right_total}.{self.lost_sum()}"
                )
        self.state_dict()

    def lost_sum(self):
        """Return a sentence where rank 0, which writes, may use what reduce left."""
        if not self.of("undefined"):
            return ""
        return (
            " dist.reduce gives the sum to one rank only, which was not rank 0. What "
            "the others have then is undefined: here, -1."
        )

    def expect_weights(self, expected, what="one process"):
        """Raise Wrong unless model.pth has the tensors of another run, in any order."""
        ours = self.state_dict()
        theirs = expected.state_dict()
        if ours.keys() != theirs.keys():
            raise Wrong(
                f"The keys of model.pth are {', '.join(map(str, ours))}; those of "
                f"{what} are {', '.join(theirs)}."
            )
        for name, value in theirs.items():
            expect_tensor(name, ours[name], value, what)

    def expect_devices(self, *expected):
        """Raise Wrong unless the layers of rank 0 trained on certain fake GPUs."""
        found = self.devices()
        if found != list(expected):
            raise Wrong(
                f"The network trained on {' and '.join(found)}, expected "
                f"{' and '.join(expected)}."
            )

    def devices(self, rank=0):
        """Return the names of the devices that layers trained on, on fake GPUs."""
        return sorted({event["device"] for event in self.of("gpu backward", rank)})

    def steps_of_training(self, rank=0):
        """Return the events of a rank's passes through the network for training."""
        return [event for event in self.of("pass", rank) if event["grad"]]

    def initial_weights(self, rank=0):
        """Return digests of the weights that a rank begins with, in order."""
        begun = self.of("weights", rank)
        return list(begun[0]["weights"].values()) if begun else []


def listed(numbers):
    """Return numbers in words: 0, 1 and 2."""
    *others, last = map(str, numbers)
    return f"{', '.join(others)} and {last}" if others else last


def expect_tensor(name, ours, theirs, what):
    """Raise Wrong unless a tensor of model.pth equals that of another run, nearly."""
    if ours.shape != theirs.shape:
        shape = " x ".join(map(str, ours.shape))
        right_shape = " x ".join(map(str, theirs.shape))
        raise Wrong(f"{name} is {shape} in model.pth, expected {right_shape}.")
    off = (ours.double() - theirs.double()).abs().max().item()
    limit = CLOSE * max(theirs.double().abs().max().item(), 1e-3)
    if not off <= limit:  # nor is NaN
        raise Wrong(
            f"{name} in model.pth is off by {off:.1e} from {what}, at most "
            f"{limit:.0e} is allowed."
        )
