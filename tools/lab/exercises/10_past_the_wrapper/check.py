from tools.lab.checks import (
    OTHER,
    TRAIN,
    equal_weights,
    reduced_by_ddp,
    same_curve,
    wrapped,
)
from tools.lab.image_checks import partitioned


def check(run):
    for setting in {}, OTHER:
        record = run(reductions=True, **setting)
        # Weights that are averaged after each step are equal: what is wrong comes next.
        equal_weights(record, "pass")
        partitioned(record, setting.get("train", TRAIN))
        same_curve(record, run.solution(**setting), "stage 1")
        wrapped(record)
        reduced_by_ddp(record)
