"""What the exercises' checks share: each raises Wrong where a script is wrong.

`seen` is what came of a run, a RunRecord.
"""

import math
import re

LIMIT = 12  # seconds; a run takes one or two, and one that takes more hangs
TRAIN, TEST, EPOCHS = 512, 101, 2  # images, and passes
# Another number of ranks and of images than the page has, which a script has to fit,
# too: `run(**OTHER)`. 165 images a rank are ten batches of 16, and one of 5; three ranks
# have 34, 34 and 33 test images.
OTHER = {"processes": 3, "batch": 48, "train": 495}
# Relative. The runs compute in float64, but a script may have float32 sums, and adds up
# to 16 steps. A mistake with one image in 512 moves a loss by more than 1e-4.
CLOSE = 1e-5
LAB = r"NVIDIA|CUDA-enabled|Torch not compiled with|File too large|fake GPU|daemonic"


class Wrong(Exception):
    """The script is still wrong: says what was seen, and what was expected."""


class Limit(Wrong):
    """The lab cannot judge this script, which may be right: says why."""


def ended(seen):
    """Raise Wrong unless the run ended well; Limit where the lab cannot run it."""
    if seen.hangs:
        raise Wrong(f"The run hangs: after {LIMIT} seconds{seen.whereabouts()}")
    if seen.status:
        why = seen.error()
        raise (Limit if re.search(LAB, why) else Wrong)(f"The run fails: {why}")


def weights(seen):
    """Return the tensors of model.pth. Raises Wrong where there are none."""
    ended(seen)
    if why := seen.unread.get("model.pth"):
        if "Weights only" in why:  # PyTorch says at length what else one could do
            raise Wrong("model.pth holds more than tensors: it is no state_dict.")
        raise Wrong(f"model.pth cannot be read: {why}")
    if not isinstance(seen.weights, dict) or not seen.weights:
        raise Wrong("There is no model.pth that holds a state_dict.")
    return seen.weights


def curve(seen, epochs=EPOCHS):
    """Return metrics.csv as rows. Raises Wrong unless it has all epochs."""
    ended(seen)
    if why := seen.unread.get("metrics.csv"):
        raise Wrong(f"metrics.csv cannot be read: {why}")
    if len(seen.rows) != epochs:
        raise Wrong(f"metrics.csv has {len(seen.rows)} epochs, expected {epochs}.")
    return seen.rows


def learns(seen, epochs=EPOCHS):
    """Raise Wrong unless metrics.csv has all epochs, and the loss falls."""
    rows = curve(seen, epochs)
    if not rows[-1][0] < rows[0][0]:
        losses = ", ".join(f"{loss:.4f}" for loss, *_ in rows)
        raise Wrong(f"The loss does not fall: {losses}")


def close(ours, theirs, limit=CLOSE):
    """Return whether two numbers are equal but for rounding; NaN is never."""
    return math.isclose(ours, theirs, rel_tol=limit)


def apart(ours, theirs, limit=CLOSE):
    """Return in words how far two numbers that look alike are from each other."""
    off = abs(ours - theirs) / (abs(theirs) or 1)
    if not off < 1e-3:  # one sees it
        return ""
    return f" They are {off:.0e} apart, relatively; {limit:.0e} is allowed."


def same_curve(seen, expected, what="one process"):
    """Raise Wrong unless losses and counts are those of another run."""
    ended(expected)
    pairs = zip(curve(seen, len(expected.rows)), expected.rows, strict=True)
    for epoch, (ours, theirs) in enumerate(pairs, start=1):
        if not close(ours[0], theirs[0]):
            raise Wrong(
                f"The loss of epoch {epoch} is {ours[0]:.6f}; that of {what} is "
                f"{theirs[0]:.6f}.{apart(ours[0], theirs[0])}"
            )
        if ours[1:] != theirs[1:]:
            raise Wrong(
                f"Epoch {epoch} counts {ours[1]} of {ours[2]} test images as correct; "
                f"{what} counts {theirs[1]} of {theirs[2]}."
            )


def same_weights(seen, expected, what="one process", names=False):
    """Raise Wrong unless model.pth has the tensors of another run, in any order.

    With `names`, they have to have the same names, too; without, tensors of one shape
    are compared in their order.
    """
    ours, theirs = weights(seen), weights(expected)
    if not names and ours.keys() != theirs.keys():
        order = [sorted(w.values(), key=lambda t: t.shape) for w in (ours, theirs)]
        ours, theirs = (dict(zip(theirs, tensors, strict=False)) for tensors in order)
    if ours.keys() != theirs.keys():
        absent = [*theirs.keys() - ours.keys()] or [*ours.keys() - theirs.keys()]
        raise Wrong(
            f"The names in model.pth begin with {next(iter(ours), None)!r}; {what} has "
            f"{next(iter(theirs))!r} ({absent[0]!r} is in one of them only)."
        )
    for name, value in theirs.items():
        if ours[name].shape != value.shape:
            shapes = (" x ".join(map(str, t.shape)) for t in (ours[name], value))
            raise Wrong("{} is {} in model.pth, expected {}.".format(name, *shapes))
        off = (ours[name].double() - value.double()).abs().max().item()
        limit = CLOSE * max(value.double().abs().max().item(), 1e-3)
        if not off <= limit:  # nor is NaN
            raise Wrong(
                f"{name} in model.pth is off by {off:.1e} from {what}, at most "
                f"{limit:.0e} is allowed."
            )


def equal_weights(seen, kind="step"):
    """Raise Wrong unless all ranks have the same weights after every step.

    `kind` is "step": the optimizer's, as it ends; or "pass": the network's, as it is
    called again, which holds for a script without an optimizer in any case.
    """
    ended(seen)
    ranks = range(len(seen.events))
    if not any(seen.of("step", rank) for rank in ranks):
        kind = "pass"
    skip = 1 if kind == "pass" else 0  # called before any step
    first, *others = (
        [e["digest"] for e in seen.of(kind, rank) if e["digest"]][skip:]
        for rank in ranks
    )
    if not first:
        raise Wrong("Rank 0 has taken no step.")
    for rank, steps in enumerate(others, start=1):
        if len(steps) != len(first):
            raise Wrong(f"Rank {rank} took {len(steps)} steps, rank 0 {len(first)}.")
        differ = [n for n, step in enumerate(steps) if step != first[n]]
        if differ:
            raise Wrong(
                f"After step {differ[0] + 1} the weights of rank {rank} differ from "
                "those of rank 0: each trains a network of its own."
            )


def trained(seen, epochs=EPOCHS):
    """Return the training images that reached each rank's network.

    A list for each rank of a list for each epoch of a list for each pass. Raises Wrong
    where a rank's passes do not divide, Limit where none was seen.
    """
    ended(seen)
    found = [seen.epochs(rank) for rank in range(len(seen.events))]
    if not any(found):
        raise Limit(
            "No training image was seen to reach a network: the lab looks at what is "
            "given to an nn.Module, N x 28 x 28 or N x 784, one image a row."
        )
    for rank, passes in enumerate(found):
        if len(passes) != epochs:
            count = sum(map(len, passes))
            raise Wrong(
                f"In {epochs} epochs rank {rank} trained on {count} batches: not as many "
                "in each."
            )
    return found


def wrapped(seen, name="DistributedDataParallel"):
    """Raise Wrong unless training went through the wrapper's forward on every rank."""
    for rank in range(len(seen.events)):
        if name not in seen.wrapped(rank):
            raise Wrong(f"No training batch went through {name} on rank {rank}.")


def cut(seen, size):
    """Raise Wrong unless each rank's optimizer has but the rank's part of the weights.

    `size` is how many numbers the whole network has; the parts may differ a little.
    """
    ended(seen)
    for rank in range(len(seen.events)):
        held = max((step["weights"] for step in seen.of("step", rank)), default=0)
        if held > 1.1 * size / len(seen.events):
            raise Wrong(
                f"The optimizer of rank {rank} has {held} of the network's {size} "
                f"numbers; each of {len(seen.events)} ranks is to keep but its part."
            )


def shared_out(seen, train=TRAIN, twice=0, epochs=EPOCHS):
    """Raise Wrong unless in each epoch one rank uses each training image, once.

    So many images may be used `twice`, as DistributedSampler does.
    """
    found = trained(seen, epochs)
    for epoch in range(epochs):
        parts = [
            [index for images in passes[epoch] for index in images] for passes in found
        ]
        for rank, part in enumerate(parts):
            for other in range(rank):
                common = len(set(part) & set(parts[other]))
                if common > twice:
                    raise Wrong(
                        f"In epoch {epoch + 1} rank {rank} trained on {common} images "
                        f"that rank {other} trained on too (of its {len(part)})."
                    )
        distinct = {index for part in parts for index in part}
        count = sum(map(len, parts))
        if len(distinct) != train:
            raise Wrong(
                f"In epoch {epoch + 1} the ranks together saw {len(distinct)} of {train} "
                "training images."
            )
        if count > train + twice:
            raise Wrong(
                f"In epoch {epoch + 1} the ranks trained on {count} images, of which "
                f"there are {train}: some were used more than once."
            )


def tests_shared_out(seen, test=TEST):
    """Raise Wrong unless the ranks share the test images out: each has its part of them.

    Of a run of one epoch. As many images may be used twice as make parts equally large.
    """
    ended(seen)
    ranks = range(len(seen.events))
    parts = [
        {i for images in seen.passes(rank, train=False) for i in images}
        for rank in ranks
    ]
    distinct = len(set().union(*parts))
    if distinct != test:
        raise Wrong(f"The ranks together evaluate {distinct} of {test} test images.")
    sizes = [len(part) for part in parts]
    if sum(sizes) - test > -test % len(ranks) or max(sizes) - min(sizes) >= len(ranks):
        raise Wrong(
            f"The ranks do not share the {test} test images out: they evaluate "
            f"{', '.join(map(str, sizes[:-1]))} and {sizes[-1]} different ones."
        )
