import math

from tools.lab.checks import THREE_RANKS, Wrong, is_close


def check(run):
    # With --hidden 2, one of three ranks holds nothing of the first layer, so that the
    # shards are not equally large.
    for flags, setting in ((), {}), (("--hidden", "2"), THREE_RANKS):
        record = run(*flags, **setting)
        expected = run.solution(*flags, **setting)
        record.expect_partition()
        if not flags:
            record.expect_shards(expected.size())
        expect_norms(record, expected)
        record.expect_result(expected)


def expect_norms(record, expected):
    """Raise Wrong unless each step has a gradient of the expected norm."""
    pairs = zip(norms(record), norms(expected), strict=False)
    for number, (norm, right) in enumerate(pairs, start=1):
        if not is_close(norm, right):
            raise Wrong(
                f"In step {number} the gradient of the whole network has the norm "
                f"{norm:.4f} after it was clipped; expected {right:.4f}."
            )


def norms(record):
    """Return the norm of the gradient in each step, from the shards of all ranks."""
    steps = zip(*(record.of("step", rank) for rank in record.ranks), strict=False)
    return [math.sqrt(sum(step["squares"] for step in shards)) for shards in steps]
