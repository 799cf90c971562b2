import math

from tools.lab.checks import (
    OTHER,
    TRAIN,
    Wrong,
    cut,
    ended,
    same_curve,
    same_weights,
    shared_out,
    weights,
)


def check(run):
    for setting in {}, OTHER:
        seen = run(**setting)
        ended(seen)
        losses = [loss for loss, *_ in seen.rows]
        if losses and math.isclose(losses[0], losses[-1], rel_tol=1e-6):
            raise Wrong(
                f"The loss is {losses[0]:.4f} in every epoch, after "
                f"{len(seen.of('step'))} steps of the optimizer: they change nothing "
                "that the network computes with."
            )
        expected = run.original(**setting)
        cut(seen, sum(value.numel() for value in weights(expected).values()))
        shared_out(seen, setting.get("train", TRAIN))
        same_curve(seen, expected, "stage 7")
        same_weights(seen, expected, "stage 7")
