"""What the exercises' checks share: each function raises Wrong where a script is wrong.

`record` is a RunRecord: what the lab recorded of a run.
"""

import math
import re

LIMIT = 12  # seconds; a run takes one or two, and one that takes more hangs
TRAIN = 512  # images
TEST = 101  # images
EPOCHS = 2
# Another number of ranks and of images than the page has, for `run(**OTHER)`: a script
# has to fit them, too. 165 images a rank are ten batches of 16, and one of 5. The three
# ranks have 34, 34 and 33 test images.
OTHER = {"processes": 3, "batch": 48, "train": 495}
# Relative. The runs compute in float64, but a script may have float32 sums, and adds up
# to 16 steps. A mistake with one image in 512 moves a loss by more than 1e-4.
CLOSE = 1e-5
# Part of an error that is due to the lab, not to the script.
LAB = r"NVIDIA|CUDA-enabled|Torch not compiled with|File too large|fake GPU|daemonic"
NO_STATE_DICT = "model.pth holds more than tensors: it is no state_dict."


class Wrong(Exception):
    """The script is still wrong: says what was seen, and what was expected.

    `setting` is that of the run that showed it, or None.
    """

    setting = None


class Limit(Wrong):
    """The lab cannot judge this script, which may be right: says why."""


def ended(record):
    """Raise Wrong unless the run ended well; Limit where the lab cannot run it."""
    if record.hangs:
        raise Wrong(f"The run hangs: after {LIMIT} seconds{record.whereabouts()}")
    if record.status:
        error = record.error()
        kind = Limit if re.search(LAB, error) else Wrong
        raise kind(f"The run fails: {error}")


def weights(record):
    """Return the tensors of model.pth. Raises Wrong where there are none."""
    ended(record)
    reason = record.unread.get("model.pth")
    if reason:
        if "Weights only" in reason:  # PyTorch says at length what else one could do
            raise Wrong(NO_STATE_DICT)
        raise Wrong(f"model.pth cannot be read: {reason}")
    if not isinstance(record.weights, dict) or not record.weights:
        raise Wrong("There is no model.pth that holds a state_dict.")
    for name, tensor in record.weights.items():
        if hasattr(tensor, "to_local"):  # a DTensor, which may or may not be readable
            raise Wrong(f"{name} in model.pth is a DTensor: {NO_STATE_DICT}")
    return record.weights


def size_of_network(record):
    """Return how many numbers model.pth has."""
    return sum(tensor.numel() for tensor in weights(record).values())


def curve(record, epochs=EPOCHS):
    """Return metrics.csv as rows. Raises Wrong unless it has all epochs."""
    ended(record)
    reason = record.unread.get("metrics.csv")
    if reason:
        raise Wrong(f"metrics.csv cannot be read: {reason}")
    if len(record.rows) != epochs:
        raise Wrong(f"metrics.csv has {len(record.rows)} epochs, expected {epochs}.")
    return record.rows


def learns(record, epochs=EPOCHS):
    """Raise Wrong unless metrics.csv has all epochs, and the loss falls."""
    losses = [loss for loss, _, _ in curve(record, epochs)]
    if not losses[-1] < losses[0]:
        told = ", ".join(f"{loss:.4f}" for loss in losses)
        raise Wrong(f"The loss does not fall: {told}")


def close(ours, theirs, limit=CLOSE):
    """Return whether two numbers are equal but for rounding; NaN is never."""
    return math.isclose(ours, theirs, rel_tol=limit)


def relative_error(ours, theirs, limit=CLOSE):
    """Return the relative error of a number in words, or '' where it is easy to see."""
    error = abs(ours - theirs) / (abs(theirs) or 1)
    if not error < 1e-3:
        return ""
    return f" They are {error:.0e} apart, relatively; {limit:.0e} is allowed."


def same_curve(record, expected, what="one process"):
    """Raise Wrong unless losses and counts are those of another run."""
    ended(expected)
    ours = curve(record, len(expected.rows))
    for epoch, row in enumerate(ours, start=1):
        loss, correct, total = row
        right_loss, right_correct, right_total = expected.rows[epoch - 1]
        if not close(loss, right_loss):
            raise Wrong(
                f"The loss of epoch {epoch} is {loss:.6f}; that of {what} is "
                f"{right_loss:.6f}.{relative_error(loss, right_loss)}"
            )
        if (correct, total) != (right_correct, right_total):
            raise Wrong(
                f"Epoch {epoch} counts {correct} of {total} test images as correct; "
                f"{what} counts {right_correct} of {right_total}."
            )


def same_weights(record, expected, what="one process", names=False):
    """Raise Wrong unless model.pth has the tensors of another run, in any order.

    With `names`, they need the same names, too. Otherwise, where the names differ,
    tensors of one shape are compared in their order.
    """
    ours = weights(record)
    theirs = weights(expected)
    if not names and ours.keys() != theirs.keys():
        ours = renamed(ours, theirs)
    if ours.keys() != theirs.keys():
        absent = list(theirs.keys() - ours.keys()) or list(ours.keys() - theirs.keys())
        raise Wrong(
            f"The names in model.pth begin with {next(iter(ours), None)!r}; {what} has "
            f"{next(iter(theirs))!r} ({absent[0]!r} is in one of them only)."
        )
    for name, value in theirs.items():
        same_tensor(name, ours[name], value, what)


def renamed(ours, theirs):
    """Return our tensors by the names of theirs, those of one shape in their order."""
    names = sorted(theirs, key=lambda name: theirs[name].shape)
    tensors = sorted(ours.values(), key=lambda tensor: tensor.shape)
    return dict(zip(names, tensors, strict=False))


def same_tensor(name, ours, theirs, what):
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


def equal_weights(record, kind="step"):
    """Raise Wrong unless all ranks have the same weights after every step.

    `kind` says which events show the weights. "step" is the end of a step of the
    optimizer. "pass" is the next call of the network: a script without an optimizer has
    that, too.
    """
    ended(record)
    ranks = range(len(record.events))
    if not any(record.of("step", rank) for rank in ranks):
        kind = "pass"
    steps = [digests(record, kind, rank) for rank in ranks]
    if not steps[0]:
        raise Wrong("Rank 0 has taken no step.")
    for rank in ranks:
        if len(steps[rank]) != len(steps[0]):
            raise Wrong(
                f"Rank {rank} took {len(steps[rank])} steps, rank 0 {len(steps[0])}."
            )
        for number, digest in enumerate(steps[rank]):
            if digest != steps[0][number]:
                where = where_different(digest, steps[0][number])
                raise Wrong(
                    f"After step {number + 1} the weights of rank {rank} differ from "
                    f"those of rank 0{where}"
                )


def where_different(ours, theirs):
    """Return the end of a sentence that names the weights that differ, from digests.

    The events of "pass" have names, those of "step" have not.
    """
    named = isinstance(ours, dict) and ours.keys() == theirs.keys()
    names = [name for name in ours if ours[name] != theirs[name]] if named else []
    if len(names) in (0, len(ours)):
        return ": each trains a network of its own."
    return f" in {', '.join(names)}.".replace("module.", "")


def digests(record, kind, rank):
    """Return a rank's digests of its weights after each step, as for equal_weights."""
    found = [event["digest"] for event in record.of(kind, rank) if event["digest"]]
    return found[1:] if kind == "pass" else found  # the first pass precedes all steps


def wrapped(record, name="DistributedDataParallel"):
    """Raise Wrong unless training went through the wrapper's forward on every rank."""
    for rank in range(len(record.events)):
        if name not in record.wrapped(rank):
            raise Wrong(f"No training batch went through {name} on rank {rank}.")


def reduced_by_ddp(record):
    """Raise Wrong unless DDP reduced each gradient once per step of the optimizer.

    The run records the reductions of DDP.
    """
    steps = len(record.of("step"))
    numbers = sum(event["numbers"] for event in record.of("reduction"))
    times = numbers / size_of_network(record) / max(steps, 1)
    if times != 1:
        raise Wrong(
            f"DDP reduced the gradients {times:.2g} times a step, expected once."
        )


def sharded(record, size):
    """Raise Wrong unless each rank's optimizer has only its shard of the weights.

    `size` is how many numbers the whole network has. Shards may differ by a tenth.
    """
    ended(record)
    ranks = len(record.events)
    for rank in range(ranks):
        numbers = max((step["weights"] for step in record.of("step", rank)), default=0)
        if numbers > 1.1 * size / ranks:
            raise Wrong(
                f"The optimizer of rank {rank} has {numbers} of the network's {size} "
                f"numbers; each of {ranks} ranks is to keep but its part."
            )
