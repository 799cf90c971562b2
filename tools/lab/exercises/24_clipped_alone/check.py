from tools.lab.checks import (
    OTHER,
    TRAIN,
    ended,
    same_curve,
    same_weights,
    sharded,
    size_of_network,
)
from tools.lab.image_checks import partitioned


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
        same_curve(record, expected, "one process")
        same_weights(record, expected)
