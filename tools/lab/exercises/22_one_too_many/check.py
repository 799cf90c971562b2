from tools.lab.checks import Wrong
from tools.lab.image_run import flat

TRY = {"processes": 3, "batch": 129}

# Ranks, images, images of a step. Each run tells a mistake that the others do not.
RUNS = [
    (3, 100, 99),  # 34, 33 and 33 images: padded for two or four ranks
    (2, 127, 64),  # 64 and 63: one image more on every rank
    (2, 67, 64),  # 34 and 33: another batch size, so that 65 and 64 are two batches
    (2, 128, 64),  # 64 and 64: one image more on every rank but the first
]


def check(run):
    for processes, train, batch in RUNS:
        record = run(processes=processes, train=train, batch=batch)
        found = record.trained()
        record.expect_wrapper()
        for epoch in range(2):
            used = flat(flat(passes[epoch] for passes in found))
            distinct = len(set(used))
            if distinct != train:
                raise Wrong(
                    f"In epoch {epoch + 1} the {processes} ranks used {distinct} of "
                    f"{train} training images."
                )
            if len(used) > train + batch:
                raise Wrong(
                    f"In epoch {epoch + 1} the {processes} ranks together trained on "
                    f"{len(used)} images. There are {train}, and an epoch may repeat "
                    f"images of one batch only, which is {batch}."
                )
        record.expect_learning()
        for rank in record.ranks:
            passes = record.training_passes(rank)
            steps = len(record.of("step", rank))
            if steps < len(passes):
                raise Wrong(
                    f"Rank {rank} put {len(passes)} batches through the network, and "
                    f"took {steps} steps: all batches have to count."
                )
            expect_network_of_first(record, rank)


def expect_network_of_first(record, rank):
    """Raise Wrong unless a rank's weights are rank 0's, while both have batches."""
    ours = by_epoch(record, rank)
    theirs = by_epoch(record, 0)
    for epoch, passes in enumerate(zip(ours, theirs, strict=True), start=1):
        if any(one != other for one, other in zip(*passes, strict=False)):
            raise Wrong(
                f"In epoch {epoch} the weights of rank {rank} differ from those of "
                "rank 0: each trains a network of its own."
            )


def by_epoch(record, rank):
    """Return the digests that a rank's training passes begin with, in two lists."""
    digests = [event["digest"] for event in record.training_passes(rank)]
    half = len(digests) // 2
    return digests[:half], digests[half:]
