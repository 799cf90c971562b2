import math

from tools.lab.checks import (
    OTHER,
    TRAIN,
    Wrong,
    ended,
    same_curve,
    same_weights,
    sharded,
    size_of_network,
)
from tools.lab.image_checks import partitioned


def check(run):
    for setting in {}, OTHER:
        record = run(**setting)
        ended(record)
        losses = [loss for loss, *_ in record.rows]
        if losses and math.isclose(losses[0], losses[-1], rel_tol=1e-6):
            raise Wrong(
                f"The loss is {losses[0]:.4f} in every epoch, after "
                f"{len(record.of('step'))} steps of the optimizer: they change nothing "
                "that the network computes with."
            )
        expected = run.original(**setting)
        sharded(record, size_of_network(expected))
        partitioned(record, setting.get("train", TRAIN))
        same_curve(record, expected, "stage 7")
        same_weights(record, expected, "stage 7")
