"""Which images each rank took: what the exercises' checks share of that.

Each function raises Wrong where a script is wrong. `record` is a RunRecord.
"""

from tools.lab.checks import EPOCHS, TEST, TRAIN, Limit, Wrong, ended


def trained(record, epochs=EPOCHS):
    """Return the training images that reached each rank's network.

    A list for each rank of a list for each epoch of a list for each pass. Raises Wrong
    where the epochs of a rank differ in length, Limit where no image was seen.
    """
    ended(record)
    found = [record.epochs(rank) for rank in range(len(record.events))]
    if not any(found):
        if not record.rows:
            raise Wrong(
                "The run ends without an error, but it has not trained: no image "
                "reached the network, and metrics.csv has no epoch."
            )
        raise Limit(
            "No training image was seen to reach a network: the lab looks at what is "
            "given to an nn.Module, N x 28 x 28 or N x 784, one image a row."
        )
    for rank, passes in enumerate(found):
        if len(passes) != epochs:
            count = sum(map(len, passes))
            raise Wrong(
                f"In {epochs} epochs rank {rank} trained on {count} batches: not as "
                "many in each."
            )
    return found


def partitioned(record, train=TRAIN, twice=0, epochs=EPOCHS):
    """Raise Wrong unless in each epoch one rank uses each training image, once.

    So many images may be used `twice`, as DistributedSampler does.
    """
    found = trained(record, epochs)
    for epoch in range(epochs):
        parts = [flat(passes[epoch]) for passes in found]
        without_overlap(parts, twice, epoch)
        together = flat(parts)
        distinct = len(set(together))
        if distinct != train:
            raise Wrong(
                f"In epoch {epoch + 1} the ranks together saw {distinct} of {train} "
                "training images."
            )
        if len(together) > train + twice:
            raise Wrong(
                f"In epoch {epoch + 1} the ranks trained on {len(together)} images, of "
                f"which there are {train}: some were used more than once."
            )


def flat(lists):
    """Return the items of lists in one list."""
    return [item for items in lists for item in items]


def without_overlap(parts, twice, epoch):
    """Raise Wrong where two ranks trained on more than `twice` images in common."""
    for rank, part in enumerate(parts):
        for other in range(rank):
            common = len(set(part) & set(parts[other]))
            if common > twice:
                raise Wrong(
                    f"In epoch {epoch + 1} rank {rank} trained on {common} images "
                    f"that rank {other} trained on too (of its {len(part)})."
                )


def evaluation_partitioned(record, test=TEST):
    """Raise Wrong unless the ranks share the test images out: each evaluates its part.

    Only as many images may be used twice as make parts equally large. A rank has the
    same part in all epochs.
    """
    ended(record)
    ranks = len(record.events)
    parts = [set(flat(record.passes(rank, train=False))) for rank in range(ranks)]
    distinct = len(set().union(*parts))
    if distinct != test:
        raise Wrong(f"The ranks together evaluate {distinct} of {test} test images.")
    sizes = [len(part) for part in parts]
    twice = sum(sizes) - test
    if twice > -test % ranks or max(sizes) - min(sizes) >= ranks:
        told = ", ".join(map(str, sizes[:-1]))
        raise Wrong(
            f"The ranks do not share the {test} test images out: they evaluate "
            f"{told} and {sizes[-1]} different ones."
        )
