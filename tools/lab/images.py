"""More requirements for `expect`: which images a run trains on and evaluates."""

import math
from collections import Counter
from itertools import combinations

from tools.lab.record import Wrong


def full_steps(record):
    """The ranks together use a whole batch per step, except in an epoch's last step."""
    batch = record.setting.batch
    for number, passes in enumerate(record.training_passes(), start=1):
        size = sum(len(event["rows"]) for event in passes)
        if size != batch and number <= record.setting.train // batch:
            raise Wrong(
                f"Step {number} takes {size} images on all ranks together, expected "
                f"{batch}, as the first line of its output says."
            )


def evaluates_shares(record, least=0):
    """Each rank evaluates only its shard of the test images."""
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
    """Each rank evaluates its shard; shard sizes differ by at most one image."""
    evaluates_shares(record, least=record.setting.test // len(record.ranks))


def each_once(record):
    """Exactly one rank uses each training image in an epoch."""
    expect_images(record, most=0)


def few_twice(record):
    """All images are used, fewer twice than there are ranks."""
    expect_images(record, most=len(record.ranks) - 1)


def all_used(record):
    """All images are used, at most as many twice as a batch has."""
    expect_images(record, most=record.setting.batch)


def expect_images(record, most):
    """Raise Wrong unless each epoch uses all images, at most `most` of them twice."""
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
                f"In epoch {epoch} the ranks together train on {len(used)} images, but "
                f"there are {train}: {twice} are used twice, at most {most} may be."
            )
        _, times = Counter(used).most_common(1)[0]
        if times > 2:
            raise Wrong(f"In epoch {epoch} the ranks train on an image {times} times.")


def new_orders(record):
    """No epoch takes the images in the same order as another."""
    orders = enumerate(images_of_epochs(record), start=1)
    for (epoch, one), (later, other) in combinations(orders, 2):
        if one == other:
            told = f"Epochs {epoch} and {later} take the images in the same order."
            raise Wrong(told)


def images_of_epochs(record):
    """Return digests of all ranks' training images, a list for each epoch."""
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
    share = record.setting.batch // len(record.ranks)  # per rank
    largest = max(len(first["rows"]) for first, *_ in record.training_passes())
    if largest > share // 4:
        raise Wrong(
            f"A part has {largest} images, but only {share // 4} fit into memory, a "
            f"quarter of a rank's {share}."
        )


def shared(record):
    """Several ranks compute on the same images, as in tensor parallelism."""
    passes = next(record.training_passes())
    parts = {tuple(event["rows"]) for event in passes}
    if len(parts) > len(passes) // 2:
        raise Wrong(
            f"In step 1, {len(passes)} ranks compute on {len(parts)} different parts "
            "of the batch: the layers are no longer divided as they were."
        )
