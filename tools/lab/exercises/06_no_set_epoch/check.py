import torch

from tools.lab.checks import OTHER, TRAIN, Wrong, equal_weights, same_curve
from tools.lab.image_checks import flat, partitioned, trained

USUAL = {"train": TRAIN, "batch": 64}


def check(run):
    record = run()
    partitioned(record)
    for rank, (first, second) in enumerate(trained(record)):
        if first == second:
            raise Wrong(
                f"Epoch 2 has the images in the order of epoch 1, on rank {rank}: "
                f"{first[0][:4]} … first in both."
            )
    for seed, setting in (0, USUAL), (1, {**OTHER, "epochs": 3}):
        flags = "--seed", str(seed)
        record = run(*flags, **setting)
        partitioned(record, setting["train"], epochs=record.count)
        equal_weights(record)
        try:
            same_curve(record, run.solution(*flags, **setting), "stage 1")
        except Wrong:
            same_order(record, seed, setting)
            raise


def same_order(record, seed, setting):
    """Raise Wrong where the first batch of an epoch is not that of stage 1.

    It says of which epoch it is.
    """
    ranks = [record.epochs(rank) for rank in range(len(record.events))]
    for epoch in range(1, record.count + 1):
        batch = flat(passes[epoch - 1][0] for passes in ranks)
        if same_images(batch, seed + epoch, setting):
            continue
        others = range(-1, 2 * record.count + 1)
        known = [n for n in others if same_images(batch, seed + n, setting)]
        order = f"the order of epoch {known[0]}" if known else "another order"
        raise Wrong(
            f"With --seed {seed}, epoch {epoch} takes the images in {order}, expected "
            f"the order of epoch {epoch} in stage 1."
        )


def same_images(batch, seed, setting):
    """Return whether a batch has the images that come first with a seed in stage 1."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(setting["train"], generator=generator).tolist()
    return sorted(batch) == sorted(order[: setting["batch"]])
