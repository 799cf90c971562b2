"""A run of a learner's script, and what a check may expect of it: `JudgedRun`.

Each of its methods `expect_...` raises Wrong where the script is wrong.
"""

import math
import re
from dataclasses import dataclass, field

from tools.lab.image_run import ImageRun
from tools.lab.run_record import Limit, Wrong

LIMIT = 12  # seconds; a run takes one or two, and one that takes more hangs
TRAIN = 512  # images
TEST = 101  # images
EPOCHS = 2
# Another number of ranks and of images than the page has, for `run(**THREE_RANKS)`: a
# script has to fit them, too. 165 images a rank are ten batches of 16, and one of 5.
# The three ranks have 34, 34 and 33 test images.
THREE_RANKS = {"processes": 3, "batch": 48, "train": 495}
# Relative. The runs compute in float64, but a script may have float32 sums, and adds up
# to 16 steps. A mistake with one image in 512 moves a loss by more than 1e-4.
CLOSE = 1e-5
# Part of an error that is due to the lab, not to the script.
DUE_TO_LAB = r"NVIDIA|CUDA-enabled|Torch not compiled with|File too large|fake GPU"
DUE_TO_LAB += "|daemonic|CUDA driver"


@dataclass(kw_only=True, eq=False)
class JudgedRun(ImageRun):
    """The record of a run of a script of the lab, and what it has saved."""

    rows: list = field(default_factory=list)  # metrics.csv: (loss, correct, total)
    weights: dict | None = None  # model.pth
    locations: list = field(default_factory=list)  # where its tensors were
    unread: dict = field(default_factory=dict)  # of those two: name -> why not read

    def expect_end(self):
        """Raise Wrong unless the run ended well; Limit where the lab cannot run it."""
        if self.hangs:
            raise Wrong(f"The run hangs: after {LIMIT} seconds{self.whereabouts()}")
        if self.status:
            error = self.error()
            kind = Limit if re.search(DUE_TO_LAB, error) else Wrong
            raise kind(f"The run fails: {error}")

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

    def size(self):
        """Return how many numbers model.pth has."""
        return sum(tensor.numel() for tensor in self.state_dict().values())

    def curve(self, epochs=None):
        """Return metrics.csv as rows. Raises Wrong unless it has all epochs."""
        reason = self.unread.get("metrics.csv")
        if reason:
            raise Wrong(f"metrics.csv cannot be read: {reason}")
        epochs = epochs or self.setting.epochs
        if len(self.rows) != epochs:
            raise Wrong(f"metrics.csv has {len(self.rows)} epochs, expected {epochs}.")
        return self.rows

    def expect_one_writer(self):
        """Raise Wrong where several ranks wrote the same file."""
        for name, ranks in self.writers().items():
            if len(ranks) > 1:
                raise Wrong(
                    f"{name} was written by ranks {listed(ranks)}, expected one rank."
                )

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
            if not is_close(loss, right_loss):
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

    def expect_start(self, expected, what):
        """Raise Wrong unless each rank begins with the weights of another run's rank.

        Both runs have the same number of ranks. The names may differ.
        """
        for rank in self.ranks:
            if self.initial_weights(rank) != expected.initial_weights(rank):
                raise Wrong(
                    f"Before the first step, the weights of rank {rank} are not those "
                    f"of {what}."
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

    def expect_result(self, expected, what="one process"):
        """Raise Wrong unless metrics.csv and model.pth are those of another run."""
        self.expect_curve(expected, what)
        self.expect_weights(expected, what)

    def expect_all_trained(self):
        """Raise Wrong where some of the network's weights are the same in all passes.

        Those are looked at that rank 0 has.
        """
        passes = self.training_passes()
        first = passes[0]["digest"] if passes else {}
        stuck = []
        for name, digest in first.items():
            if all(event["digest"].get(name) == digest for event in passes):
                stuck.append(name)
        if stuck:
            raise Wrong(
                f"{', '.join(stuck)} did not change in training, in "
                f"{len(self.of('step'))} steps of the optimizer: no step updates what "
                "the network computes with."
            )

    def weights_by_batch(self, rank=0):
        """Return digests of the weights with which a rank begins each batch.

        As {(epoch, batch): {name: digest}}, counted from 1.
        """
        found = {}
        epochs = self.in_epochs(self.training_passes(rank))
        for epoch, passes in enumerate(epochs, start=1):
            for batch, event in enumerate(passes, start=1):
                found[epoch, batch] = event["digest"]
        return found

    def initial_weights(self, rank=0):
        """Return digests of the weights that a rank begins with, in order."""
        return [*self.weights_by_batch(rank).get((1, 1), {}).values()]

    def expect_equal_weights(self):
        """Raise Wrong unless a rank begins each batch with the weights of rank 0.

        A batch that rank 0 does not have is left out.
        """
        first = self.weights_by_batch()
        for rank in self.ranks:
            for (epoch, batch), ours in self.weights_by_batch(rank).items():
                theirs = first.get((epoch, batch), ours)
                names = [name for name in ours if ours[name] != theirs.get(name)]
                if names:
                    raise Wrong(
                        f"In batch {batch} of epoch {epoch} the weights of rank {rank} "
                        f"differ from those of rank 0: {', '.join(names)}."
                    )

    def expect_data_parallel(self, twice=0):
        """Raise Wrong unless the ranks share the images, and train one network by DDP.

        So many images may be used `twice` in an epoch.
        """
        self.expect_wrapper()
        self.expect_partition(twice)
        self.expect_equal_weights()

    def devices(self, rank=0):
        """Return the names of the devices that layers trained on, on fake GPUs."""
        return sorted({event["device"] for event in self.of("backward", rank)})

    def expect_devices(self, *expected):
        """Raise Wrong unless the layers of rank 0 trained on certain fake GPUs."""
        found = self.devices()
        if found != list(expected):
            raise Wrong(
                f"The network trained on {' and '.join(found)}, expected "
                f"{' and '.join(expected)}."
            )

    def expect_wrapper(self):
        """Raise Wrong unless training went through DDP's forward on all ranks."""
        for rank in self.ranks:
            if "DistributedDataParallel" not in self.wrappers(rank):
                raise Wrong(f"No training batch went through DDP on rank {rank}.")

    def expect_one_reduction(self):
        """Raise Wrong unless DDP reduces each gradient once per step."""
        numbers = sum(event["reduced"] for event in self.of("wrapper"))
        times = numbers / self.size() / max(len(self.of("step")), 1)
        if times != 1:
            raise Wrong(
                f"DDP reduced the gradients {times:.2g} times a step, expected once."
            )

    def expect_shards(self, size):
        """Raise Wrong unless each rank's optimizer has only its shard of the weights.

        `size` is how many numbers the network has. Shards may differ by a tenth.
        """
        for rank in self.ranks:
            steps = self.of("step", rank)
            numbers = max((step["weights"] for step in steps), default=0)
            if numbers > 1.1 * size / len(self.ranks):
                raise Wrong(
                    f"The optimizer of rank {rank} has {numbers} of the network's "
                    f"{size} numbers; each of {len(self.ranks)} ranks is to keep but "
                    "its part."
                )


def listed(numbers):
    """Return numbers in words: 0, 1 and 2."""
    *others, last = map(str, numbers)
    return f"{', '.join(others)} and {last}" if others else last


def is_close(ours, theirs):
    """Return whether two numbers are equal but for rounding; NaN is never."""
    return math.isclose(ours, theirs, rel_tol=CLOSE)


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
