"""More of `expect`: which images a run trains on and evaluates."""

import math

from tools.lab.record import Wrong


def full_steps(record):
    """Each step takes the whole batch on all ranks together, but for the last one."""
    batch = record.setting.batch
    for number, passes in enumerate(record.training_passes(), start=1):
        size = sum(len(event["rows"]) for event in passes)
        if size != batch and number <= record.setting.train // batch:
            raise Wrong(
                f"Step {number} takes {size} images on all ranks together, expected "
                f"{batch}, as the first line says."
            )


def evaluates_shares(record, least=0):
    """Each rank evaluates its share of the test images, and no more."""
    share = math.ceil(record.setting.test / len(record.ranks))
    for rank in record.ranks:
        passes = [one for one in record.of("pass", rank) if not one["grad"]]
        images = sum(len(one["rows"]) for one in passes) // record.setting.epochs
        if not least <= images <= share:
            told = (
                f"Rank {rank} evaluates {images} of {record.setting.test} test images"
            )
            raise Wrong(f"{told}, expected {least} to {share}.")


def even_shares(record):
    """And the shares differ by one image at most."""
    evaluates_shares(record, least=record.setting.test // len(record.ranks))


def each_once(record):
    """Each training image is used by exactly one rank in an epoch."""
    expect_images(record, most=0)


def few_twice(record):
    """And fewer are used twice than there are ranks."""
    expect_images(record, most=len(record.ranks) - 1)


def all_used(record):
    """Each image is used, and no more of them twice than a batch has."""
    expect_images(record, most=record.setting.batch)


def expect_images(record, most):
    """Raise Wrong unless all images are used in each epoch, at most so many twice."""
    train = record.setting.train
    for epoch, used in enumerate(images_of_epochs(record), start=1):
        if len(set(used)) < train:
            raise Wrong(
                f"In epoch {epoch} the ranks together train on {len(set(used))} of "
                f"{train} images."
            )
        twice = len(used) - train
        if twice > most:
            raise Wrong(
                f"In epoch {epoch} the ranks together train on {len(used)} images, of "
                f"which there are {train}: {twice} are used twice, and {most} may be."
            )


def images_of_epochs(record):
    """Return digests of the images that all ranks train on, a list for each epoch."""
    epochs = [[] for _ in range(record.setting.epochs)]
    for rank in record.ranks:
        passes = [one["rows"] for one in record.of("pass", rank) if one["grad"]]
        count = len(passes) // len(epochs)
        for number, epoch in enumerate(epochs):
            for rows in passes[number * count : (number + 1) * count]:
                epoch += rows
    return epochs


def quarters(record):
    """No pass has more images than a quarter of the rank's batch."""
    share = record.setting.batch // len(record.ranks)  # of a rank
    largest = max(len(first["rows"]) for first, *_ in record.training_passes())
    if largest > share // 4:
        raise Wrong(
            f"A part has {largest} images; {share // 4} fit into memory, a quarter of "
            f"a rank's {share}."
        )
