"""What the exercises' checks share: each raises Wrong where a script is wrong.

`seen` is what came of a run, an observe.Seen.
"""

import math

LIMIT = 12  # seconds; a run takes one or two, and one that takes more hangs
TRAIN, TEST, EPOCHS = 512, 101, 2  # images, and passes
CLOSE = 1e-9  # relative; the runs compute in float64


class Wrong(Exception):
    """The script is still wrong: says what was seen, and what was expected."""


def ended(seen):
    """Raise Wrong unless the run ended well."""
    if seen.places:
        where = [f"\n  rank {rank} is at {at}" for rank, at in seen.places.items()]
        raise Wrong(f"The run hangs: after {LIMIT} seconds{''.join(where)}")
    if seen.status:
        raise Wrong(f"The run fails: {seen.error()}")


def weights(seen):
    """Return the tensors of model.pth. Raises Wrong where there are none."""
    ended(seen)
    if not isinstance(seen.weights, dict) or not seen.weights:
        raise Wrong("There is no model.pth that holds a state_dict.")
    return seen.weights


def learns(seen, epochs=EPOCHS):
    """Raise Wrong unless metrics.csv has all epochs, and the loss falls."""
    ended(seen)
    if len(seen.rows) != epochs:
        raise Wrong(f"metrics.csv has {len(seen.rows)} epochs, expected {epochs}.")
    if not seen.rows[-1][0] < seen.rows[0][0]:
        losses = ", ".join(f"{loss:.4f}" for loss, *_ in seen.rows)
        raise Wrong(f"The loss does not fall: {losses}")


def same_curve(seen, expected, what="one process"):
    """Raise Wrong unless losses and counts are those of another run."""
    ended(seen)
    ended(expected)
    epochs, needed = len(seen.rows), len(expected.rows)
    if epochs != needed:
        raise Wrong(f"metrics.csv has {epochs} epochs, not {needed}.")
    pairs = zip(seen.rows, expected.rows, strict=True)
    for epoch, (ours, theirs) in enumerate(pairs, start=1):
        if not math.isclose(ours[0], theirs[0], rel_tol=CLOSE):  # nor is NaN to NaN
            raise Wrong(
                f"The loss of epoch {epoch} is {ours[0]:.6f}; that of {what} is "
                f"{theirs[0]:.6f}."
            )
        if ours[1:] != theirs[1:]:
            raise Wrong(
                f"Epoch {epoch} counts {ours[1]} of {ours[2]} test images as correct; "
                f"{what} counts {theirs[1]} of {theirs[2]}."
            )


def equal_weights(seen, kind="step"):
    """Raise Wrong unless all ranks have the same weights after every step.

    `kind` is "step": the optimizer's, as it ends; or "weights": the network's, as it is
    called again.
    """
    ranks = range(len(seen.events))
    skip = 1 if kind == "weights" else 0  # called before any step
    first, *others = (
        [e["digest"] for e in seen.of(kind, rank)[skip:]] for rank in ranks
    )
    if not first:
        raise Wrong("No rank has taken a step of its optimizer.")
    for rank, steps in enumerate(others, start=1):
        if len(steps) != len(first):
            raise Wrong(f"Rank {rank} took {len(steps)} steps, rank 0 {len(first)}.")
        apart = [n for n, step in enumerate(steps) if step != first[n]]
        if apart:
            raise Wrong(
                f"After step {apart[0] + 1} the weights of rank {rank} differ from "
                "those of rank 0: each trains a network of its own."
            )


def shared_out(seen, train=TRAIN):
    """Raise Wrong unless in each epoch one rank uses each training image, once."""
    ended(seen)
    for epoch in range(EPOCHS):
        parts = []
        for rank in range(len(seen.events)):
            epochs = seen.epochs(rank)
            if len(epochs) != EPOCHS:
                raise Wrong(f"Rank {rank} goes through its images {len(epochs)} times.")
            parts.append([index for batch in epochs[epoch] for index in batch])
        for rank, part in enumerate(parts[1:], start=1):
            common = len(set(part) & set(parts[0]))
            if common:
                raise Wrong(
                    f"In epoch {epoch + 1} rank {rank} trained on {common} images that "
                    f"rank 0 trained on too (of its {len(part)})."
                )
        found = {index for part in parts for index in part}
        if len(found) != train:
            raise Wrong(
                f"In epoch {epoch + 1} the ranks together saw {len(found)} of {train} "
                "training images."
            )
