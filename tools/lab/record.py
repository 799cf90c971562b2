"""The Record of a finished run; its `expect_` methods raise Wrong if unmet."""

import csv
import re

import torch

from onecurve import api
from tools.run import compare

# Relative. Runs use float64, but a script may add in float32, over up to 16 steps. A
# mistake with one image in 512 changes a loss by more than 1e-4.
CLOSE = 1e-5
# How many of a finding's details to show; others would give away the cause.
FACTS = {"weights": 1, "no_gradient": 0}
# Findings that give away the cause.
UNTOLD = {"clip"}
# Errors caused by the lab, not by the script.
DUE_TO_LAB = r"NVIDIA|CUDA-enabled|Torch not compiled with|File too large|fake GPU"
DUE_TO_LAB += "|daemonic|CUDA driver"


class Wrong(Exception):
    """The script is wrong. The message says what was seen and what was expected."""


class Limit(Wrong):
    """The lab can't judge this script, which may be correct. The message says why."""


def read_curve(path):
    """Return metrics.csv as [(epoch or step, as a string, (loss, correct, total))]."""
    with open(path, newline="") as file:
        names = [row.get("epoch", row.get("step")) for row in csv.DictReader(file)]
    return list(zip(names, compare.read(path), strict=False))


class Record(api.Seen):
    """The events of a run's ranks, and the files that the script saved.

    `curve` is `read_curve`'s result and `rows` its rows. `weights` is model.pth's
    content or None, `locations` its tensors' devices, `why` {unreadable file: error}.
    """

    def __init__(self, events, result, out, text, setting, limit):
        super().__init__(events)
        self.result = result  # of ranks.run
        self.out = out  # the output folder
        self.text = text  # the script's
        self.setting = setting
        self.limit = limit  # seconds until the run counts as hanging
        self.row = "report" if setting.steps else "epoch"  # a row of metrics.csv
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
        """Load a storage of model.pth on the CPU, and note where it was."""
        self.locations.append(location)
        return storage

    def read(self, name, function, **options):
        """Return a function's result for one of the run's files, or None."""
        path = self.out / name
        if not path.exists():
            return None
        try:
            return function(path, **options)
        except Exception as error:  # noqa: BLE001, a script may write anything
            lines = str(error).splitlines()
            self.why[name] = lines[0] if lines else "it is empty"
            return None

    def too_long(self):
        """Say that a run hangs or was stopped, and where each rank was."""
        told = f"hangs: no rank has made progress for {self.limit:g} seconds"
        if self.result.late == api.STOPPED:
            told = f"was stopped: a rank computed for {self.limit:g} seconds, a "
            told += "correct script for a few"
        return told + api.whereabouts(self.result, self.text, self)

    def error(self):
        """Say why the run failed, without the path of its folder."""
        told = api.error(self.result, self.text, self)
        return told.replace(f"{self.out.parent}/", "")

    def expect_end(self):
        """Raise Wrong unless the run ended well, or Limit if the lab can't run it."""
        if self.hangs:
            raise Wrong(f"The run {self.too_long()}")
        if self.status:
            error = self.error()
            kind = Limit if re.search(DUE_TO_LAB, error) else Wrong
            raise kind(f"The run fails: {error}")

    def findings(self):
        """Return what the inspector finds in a single run."""
        return api.findings(self, lambda file: self.text)

    def expect_no_finding(self, but=()):
        """Raise Wrong if the inspector finds an ERROR, unless `but` names it.

        The message hides its fix, and its cause if it names a consequence. Models split
        across ranks are skipped.
        """
        if self.of("cannot_tell"):
            return
        for found in self.findings():
            if found.level == "ERROR" and found.name not in (*UNTOLD, *but):
                what = (found.consequences or [found.what])[0]
                what = what.replace(f"{self.out}/", "")
                line = api.line_number(found.line)
                where = f"\n  at {api.at(self.text, line)}" if line else ""
                shown = 0 if found.consequences else FACTS.get(found.name)
                details = "".join(f"\n  {one}" for one in found.details[:shown])
                raise Wrong(f"{what[0].upper()}{what[1:]}.{where}{details}")

    def state_dict(self):
        """Return the tensors of model.pth. Raises Wrong if there are none."""
        if "model.pth" in self.why:
            why = self.why["model.pth"]
            raise Wrong(f"model.pth cannot be read as a state_dict: {why}")
        if not isinstance(self.weights, dict) or not self.weights:
            raise Wrong("model.pth is missing or contains no state_dict.")
        for name, value in self.weights.items():
            if hasattr(value, "to_local"):
                raise Wrong(f"{name} in model.pth is a DTensor, a shard of a tensor.")
        return self.weights

    def expect_epochs(self, count):
        """Raise Wrong unless metrics.csv has `count` rows."""
        if "metrics.csv" in self.why:
            why = self.why["metrics.csv"]
            raise Wrong(f"metrics.csv cannot be read: {why}.")
        if not self.rows and not self.of("step"):
            raise Wrong(
                "The run ends without an error, but it has not trained: no optimizer "
                f"took a step and metrics.csv contains no {self.row}."
            )
        if len(self.rows) != count:
            found = len(self.rows)
            rows = f"metrics.csv contains {found} {self.row}"
            raise Wrong(f"{rows}{'s' * (found != 1)}, expected {count}.")

    def expect_learning(self):
        """Raise Wrong unless all epochs ran, the loss fell and the model was saved."""
        self.expect_epochs(self.setting.epochs)
        losses = [loss for loss, _, _ in self.rows]
        if not losses[-1] < losses[0]:
            told = ", ".join(f"{loss:.4f}" for loss in losses)
            raise Wrong(f"The loss does not fall: {told}")
        self.state_dict()

    def expect_devices(self, *expected):
        """Raise Wrong unless rank 0's layers trained on exactly these fake GPUs."""
        events = self.of("gpu backward")
        for part in events, events[-8:]:  # also in the last step
            found = sorted({event["device"] for event in part})
            if found != list(expected):
                raise Wrong(
                    f"The network trained on {' and '.join(found)}, expected "
                    f"{' and '.join(expected)}."
                )

    def initial_weights(self, rank=0):
        """Return digests of a rank's initial weights, in order."""
        return [event["weights"] for event in self.of("start", rank)]
