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
        streams(record, train)


def streams(record, train):
    """Raise Wrong where a DataLoader reads the training images from no stream."""
    loaders = record.of("loader")
    from_stream = any(loader["is_stream"] for loader in loaders)
    by_index = any(loader["size"] == train for loader in loaders)
    if "IterableDataset" not in record.text or (by_index and not from_stream):
        raise Wrong("The training images do not come as a stream any more.")
