import math

from tools.lab.checks import (
    OTHER,
    TRAIN,
    Wrong,
    close,
    ended,
    same_curve,
    same_weights,
    sharded,
    size_of_network,
)
from tools.lab.image_checks import partitioned


def clipped(record, expected):
    """Raise Wrong unless each step has a gradient of the expected norm.

    Each rank has a shard of the gradient.
    """
    pairs = zip(norms(record), norms(expected), strict=False)
    for number, (norm, right) in enumerate(pairs, start=1):
        if not close(norm, right):
            raise Wrong(
                f"In step {number} the gradient of the whole network has the norm "
                f"{norm:.4f} after it was clipped; expected {right:.4f}."
            )


def norms(record):
    """Return the norm of the gradient in each step, from the shards of all ranks."""
    ranks = range(len(record.events))
    shards = [[step["squares"] for step in record.of("step", rank)] for rank in ranks]
    return [math.sqrt(sum(squares)) for squares in zip(*shards, strict=False)]


def check(run):
    # With --hidden 2, one of three ranks holds nothing of the first layer, so that the
    # shards are not equally large.
    for flags, setting in ((), {}), (("--hidden", "2"), OTHER):
        record = run(*flags, **setting)
        expected = run.solution(*flags, **setting)
        ended(record)
        partitioned(record, setting.get("train", TRAIN))
        if not flags:
            sharded(record, size_of_network(expected))
        clipped(record, expected)
        same_curve(record, expected, "one process")
        same_weights(record, expected)
