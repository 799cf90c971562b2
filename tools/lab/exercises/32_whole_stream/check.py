from tools.lab.checks import (
    OTHER,
    TRAIN,
    Wrong,
    equal_weights,
    learns,
    same_curve,
    wrapped,
)
from tools.lab.image_checks import partitioned

# One image more than three ranks can take in ten batches of 16 each.
UNEVEN = {**OTHER, "train": 481}


def check(run):
    for setting in {}, OTHER, UNEVEN:
        record = run(**setting)
        train = setting.get("train", TRAIN)
        partitioned(record, train, twice=-train % len(record.events))
        wrapped(record)
        equal_weights(record)
        if setting is UNEVEN:
            learns(record)
        else:
            same_curve(record, run.original(**setting), "one process")
    if "IterableDataset" not in record.text:
        raise Wrong(
            "The script has no IterableDataset any more: the images do not come as a "
            "stream."
        )
