from tools.lab.checks import (
    OTHER,
    TEST,
    TRAIN,
    Wrong,
    ended,
    equal_weights,
    same_curve,
    wrapped,
)
from tools.lab.image_checks import evaluation_partitioned, partitioned

TRY = {"epochs": 6, "flags": ["--lr", "0.5"]}

EPOCHS = 6
FLAGS = "--lr", "0.3"  # the counts go up and down


def check(run):
    # With five test images for three ranks, the count of each, the largest and the mean
    # of their accuracies all lead to other rates than the count of all images.
    for setting in {}, {**OTHER, "test": 5}:
        record = run(*FLAGS, **setting, epochs=EPOCHS)
        alone = setting | {"processes": 1}
        expected = run.solution(*FLAGS, **alone, epochs=EPOCHS)
        ended(record)
        wrapped(record)
        partitioned(record, setting.get("train", TRAIN), epochs=EPOCHS)
        same_rates(record, expected)
        equal_weights(record)
        same_curve(record, expected, "one process")
        evaluation_partitioned(record, setting.get("test", TEST))


def by_epoch(record, rank):
    """Return a rank's learning rates: those of an epoch, in a sorted list."""
    rates = record.rates(rank)
    if not rates or len(rates) % EPOCHS:
        raise Wrong(f"Rank {rank} took {len(rates)} steps: not as many in each epoch.")
    size = len(rates) // EPOCHS
    return [sorted(set(rates[n : n + size])) for n in range(0, len(rates), size)]


def same_rates(record, expected):
    """Raise Wrong unless all ranks have the rates of the solution."""
    right = by_epoch(expected, 0)
    ours = [by_epoch(record, rank) for rank in range(len(record.events))]
    for epoch, rates in enumerate(zip(*ours, strict=True)):
        for rank in reversed(range(len(rates))):
            told = ", ".join(f"{rate:g}" for rate in rates[rank])
            where = f"In epoch {epoch + 1} rank {rank} has a learning rate of {told}"
            if rates[rank] != rates[0]:
                raise Wrong(f"{where}, rank 0 one of {rates[0][0]:g}.")
        if len(rates[0]) > 1 or abs(rates[0][0] - right[epoch][0]) > 1e-6:
            raise Wrong(
                f"{where}; one process, which counts all test images, has "
                f"{right[epoch][0]:g}."
            )
