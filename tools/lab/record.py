"""A run of a learner's script that has ended, and what may be expected of it: `Record`.

Each of its methods `expect_...` raises Wrong where the script is wrong.
"""

import csv
import re
from itertools import combinations

import torch

from onecurve import api
from tools.run import compare

# Relative. The runs compute in float64, but a script may have float32 sums, and adds up
# to 16 steps. A mistake with one image in 512 moves a loss by more than 1e-4.
CLOSE = 1e-5
# How many details of a finding say what was seen, if others say why.
FACTS = {"weights": 1, "no_gradient": 0}
# Findings that say the cause itself, or what is no mistake in a run that has ended.
UNTOLD = {"clip", "batches"}
# Part of an error that is due to the lab, not to the script.
DUE_TO_LAB = r"NVIDIA|CUDA-enabled|Torch not compiled with|File too large|fake GPU"
DUE_TO_LAB += "|daemonic|CUDA driver"


class Wrong(Exception):
    """The script is still wrong: says what was seen, and what was expected."""


class Limit(Wrong):
    """The lab cannot judge this script, which may be right: says why."""


def read_curve(path):
    """Return (number of the epoch or step, a text, row) for each line of metrics.csv.

    A row has (loss, correct, total).
    """
    with open(path, newline="") as file:
        names = [row.get("epoch", row.get("step")) for row in csv.DictReader(file)]
    return list(zip(names, compare.read(path), strict=False))


class Record(api.Seen):
    """What the ranks of a run have written down, and what the script has saved.

    `curve` is what `read_curve` returns, and `rows` its rows; `weights` is what
    model.pth holds, or None, and `locations` where its tensors were; `why` says which
    of these files could not be read.
    """

    def __init__(self, events, result, out, text, setting, limit):
        super().__init__(events)
        self.result = result  # of ranks.run
        self.out = out  # where the run was told to write
        self.text = text  # of the script
        self.setting = setting  # how the script was run
        self.limit = limit  # seconds after which it hangs
        self.row = "report" if setting.steps else "epoch"  # of metrics.csv
        self.close = compare.EXACT if setting.steps else CLOSE
        self.digits = 9 if setting.steps else 6
        self.hangs = bool(result.late)
        self.stdout = result.stdout
        self.status = result.returncode
        self.locations = []
        self.why = {}
        self.curve = self.read("metrics.csv", read_curve) or []
        self.rows = [row for _, row in self.curve]
        self.weights = self.read("model.pth", torch.load, map_location=self.to_cpu)

    def to_cpu(self, storage, location):
        """Take a storage of model.pth, which says where it was, to the CPU."""
        self.locations.append(location)
        return storage

    def read(self, name, function, **options):
        """Return what a function returns for a file of the run, or None."""
        path = self.out / name
        if not path.exists():
            return None
        try:
            return function(path, **options)
        except Exception as error:  # noqa: BLE001, whatever a script has written there
            lines = str(error).splitlines()
            self.why[name] = lines[0] if lines else "it is empty"
            return None

    def too_long(self):
        """Return in words that a run hangs, or was stopped, and where each rank was."""
        told = f"hangs: for {self.limit:g} seconds no rank has got on"
        if self.result.late == api.STOPPED:
            told = f"was stopped: a rank has computed for {self.limit:g} seconds, a "
            told += "right one for few"
        return told + api.whereabouts(self.result, self.text, self)

    def error(self):
        """Return in words why the run failed; the folder of the run is left out."""
        told = api.error(self.result, self.text, self)
        return told.replace(f"{self.out.parent}/", "")

    @property
    def ended_well(self):
        """Whether the run ended by itself, without an error."""
        return not self.hangs and not self.status

    def expect_end(self):
        """Raise Wrong unless the run ended well; Limit where the lab cannot run it."""
        if self.hangs:
            raise Wrong(f"The run {self.too_long()}")
        if self.status:
            error = self.error()
            kind = Limit if re.search(DUE_TO_LAB, error) else Wrong
            raise kind(f"The run fails: {error}")

    def expect_no_finding(self, level="ERROR", but=()):
        """Raise Wrong where a rule of the judge finds a mistake, of that level.

        Its cause and its repair are the learner's to find. A model that is split among
        ranks is not looked at, nor is what `but` names.
        """
        if self.of("cannot_tell"):
            return
        for found in api.findings(self):
            if found.level == level and found.name not in (*UNTOLD, *but):
                what = found.what.replace(f"{self.out}/", "")
                line = api.line_number(found.line)
                where = f"\n  at {api.at(self.text, line)}" if line else ""
                facts = found.details[: FACTS.get(found.name)]
                details = "".join(f"\n  {detail}" for detail in facts)
                raise Wrong(f"{what[0].upper()}{what[1:]}.{where}{details}")

    def state_dict(self):
        """Return the tensors of model.pth. Raises Wrong where there is none."""
        if "model.pth" in self.why:
            why = self.why["model.pth"]
            raise Wrong(f"model.pth cannot be read as a state_dict: {why}")
        if not isinstance(self.weights, dict) or not self.weights:
            raise Wrong("There is no model.pth that holds a state_dict.")
        for name, value in self.weights.items():
            if hasattr(value, "to_local"):
                raise Wrong(f"{name} in model.pth is a DTensor: a shard of a tensor.")
        return self.weights

    def expect_epochs(self, count):
        """Raise Wrong unless metrics.csv has so many epochs."""
        if "metrics.csv" in self.why:
            why = self.why["metrics.csv"]
            raise Wrong(f"metrics.csv cannot be read: {why}.")
        if not self.rows and not self.of("step"):
            raise Wrong(
                "The run ends without an error, but it has not trained: no optimizer "
                f"took a step, and metrics.csv has no {self.row}."
            )
        if len(self.rows) != count:
            found = len(self.rows)
            rows = f"metrics.csv has a row for {found} {self.row}"
            raise Wrong(f"{rows}{'s' * (found != 1)}, expected {count}.")

    def expect_learning(self):
        """Raise Wrong unless a run has all epochs, the loss falls, and it has saved.

        No two epochs may have the same order, where one is known.
        """
        self.expect_epochs(self.setting.epochs)
        losses = [loss for loss, _, _ in self.rows]
        if not losses[-1] < losses[0]:
            told = ", ".join(f"{loss:.4f}" for loss in losses)
            raise Wrong(f"The loss does not fall: {told}")
        orders = enumerate(self.readings(0, True), start=1)
        for (epoch, one), (later, other) in combinations(orders, 2):
            if one["indices"] and one["indices"] == other["indices"]:
                told = f"Epochs {epoch} and {later} take the images in the same order."
                raise Wrong(told)
        self.state_dict()

    def expect_devices(self, *expected):
        """Raise Wrong unless the layers of rank 0 trained on certain fake GPUs."""
        found = sorted({event["device"] for event in self.of("gpu backward")})
        if found != list(expected):
            raise Wrong(
                f"The network trained on {' and '.join(found)}, expected "
                f"{' and '.join(expected)}."
            )

    def initial_weights(self, rank=0):
        """Return digests of the weights that a rank begins with, in order."""
        return [event["weights"] for event in self.of("start", rank)]
