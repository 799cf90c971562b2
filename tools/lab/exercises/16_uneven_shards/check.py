from tools.lab.checks import Wrong, learns, wrapped
from tools.lab.image_checks import flat, trained

TRY = {"processes": 3, "batch": 129}

# Ranks, images, images of a step. Each run tells a mistake that the others do not.
RUNS = [
    (3, 100, 99),  # 34, 33 and 33 images: padded for two or four ranks
    (2, 127, 64),  # 64 and 63: one image more on every rank
    (2, 67, 64),  # 34 and 33: another batch size, so that 65 and 64 are two batches
    (2, 128, 64),  # 64 and 64: one image more on every rank but the first
]


def digests(record, rank):
    """Return the weights that each training pass begins with, a digest a pass."""
    return [
        event["digest"]
        for event in record.of("pass", rank)
        if event["grad"] and any(train for train, _ in event["images"])
    ]


def check(run):
    for processes, train, batch in RUNS:
        record = run(processes=processes, train=train, batch=batch)
        found = trained(record)
        wrapped(record)
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
        learns(record)
        weights = [digests(record, rank) for rank in range(processes)]
        for rank, passes in enumerate(found):
            steps = len(record.of("step", rank))
            if steps < len(weights[rank]):
                raise Wrong(
                    f"Rank {rank} put {len(weights[rank])} batches through the "
                    f"network, and took {steps} steps: all batches have to count."
                )
            for epoch in range(2):
                size = len(passes[epoch])
                first_size = len(found[0][epoch])
                both = min(size, first_size)
                ours = weights[rank][epoch * size :][:both]
                theirs = weights[0][epoch * first_size :][:both]
                if ours != theirs:
                    raise Wrong(
                        f"In epoch {epoch + 1} the weights of rank {rank} differ from "
                        "those of rank 0: each trains a network of its own."
                    )
