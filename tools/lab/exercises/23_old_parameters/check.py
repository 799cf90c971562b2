from tools.lab.checks import (
    OTHER,
    TRAIN,
    Wrong,
    ended,
    renamed,
    same_curve,
    same_weights,
    sharded,
    size_of_network,
    weights,
)
from tools.lab.image_checks import partitioned


def check(run):
    for setting in {}, OTHER:
        record = run(**setting)
        ended(record)
        expected = run.original(**setting)
        try:
            sharded(record, size_of_network(expected))
            partitioned(record, setting.get("train", TRAIN))
            same_curve(record, expected, "stage 7")
            same_weights(record, expected, "stage 7")
        except Wrong:
            all_change(record, run.original("--lr", "1e-12", **setting))
            raise


def all_change(record, still):
    """Raise Wrong where a tensor of model.pth is as in a run that learns nothing."""
    ours = weights(record)
    first = weights(still)
    if ours.keys() != first.keys():
        first = renamed(first, ours)
    stuck = []
    for name, value in ours.items():
        known = name in first and value.shape == first[name].shape
        if known and (value - first[name]).abs().max() < 1e-9:
            stuck.append(name)
    if stuck:
        raise Wrong(
            f"{', '.join(stuck)} did not change in training, in "
            f"{len(record.of('step'))} steps of the optimizer: no step updates what "
            "the network computes with."
        )
