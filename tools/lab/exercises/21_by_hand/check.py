from tools.lab.checks import (
    OTHER,
    TRAIN,
    Wrong,
    ended,
    equal_weights,
    same_curve,
    same_weights,
)
from tools.lab.image_checks import partitioned

RATE = 0.1  # of the stage


def check(run):
    for setting in {}, OTHER:
        record = run(**setting)
        ended(record)
        if record.of("ddp"):
            raise Wrong(
                "The script uses DistributedDataParallel; the task is to do without."
            )
        equal_weights(record)
        for rank in range(len(record.events)):
            others = set(record.rates(rank)) - {RATE}
            if others:
                raise Wrong(
                    f"The learning rate is {max(others)}, expected {RATE}: what the "
                    "optimizer gets is to be the mean."
                )
        partitioned(record, setting.get("train", TRAIN))
        expected = run.original(**setting)
        same_curve(record, expected, "DDP")
        same_weights(record, expected, "DDP")
