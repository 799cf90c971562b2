"""What an exercise may expect of a run besides: `expect` in its exercise.toml.

Each function gets a Record, and raises Wrong.
"""

import math
from itertools import chain

from tools.lab.record import Wrong


def loads_anywhere(record):
    """What is saved says that it was on the CPU, and nn.DataParallel stays."""
    if set(record.locations) - {"cpu"}:
        raise Wrong(
            "What is saved with two GPUs cannot be loaded without one: a file says "
            "where its tensors were, and they have to be on the CPU."
        )
    steps = len(record.of("step"))
    copied = sum(event["training"] for event in record.of("gpu replicas"))
    if record.setting.fake and copied < steps:
        raise Wrong(
            f"With two GPUs nn.DataParallel was at work in {copied} of {steps} "
            "training steps: it has to stay."
        )


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


def by_ddp(record):
    """DistributedDataParallel exchanges the gradients, and not the script."""
    passes = [one for one in record.of("pass") if one["grad"]]
    if not record.of("ddp") or all(one["inside"] for one in passes):
        raise Wrong(
            "No pass for training goes through DistributedDataParallel: it exchanges "
            "no gradients."
        )


def evaluates_shares(record):
    """Each rank evaluates its share of the test images, and no more."""
    share = math.ceil(record.setting.test / len(record.ranks))
    for rank in record.ranks:
        passes = [one for one in record.of("pass", rank) if not one["grad"]]
        images = sum(len(one["rows"]) for one in passes) // record.setting.epochs
        if images > share:
            raise Wrong(
                f"Rank {rank} evaluates {images} of {record.setting.test} test images; "
                f"its share has {share} at most."
            )


def no_ddp(record):
    """The gradients are exchanged by hand."""
    if record.of("ddp"):
        raise Wrong(
            "The script uses DistributedDataParallel; the task is to do without."
        )


def stream(record):
    """The training images come from a stream, which has no size; all of them."""
    if any("size" in read for read in record.readings(0, True)):
        raise Wrong("The training images do not come as a stream any more.")
    epochs = record.setting.epochs
    passes = [[one["rows"] for one in each] for each in record.training_passes()]
    steps = len(passes) // epochs
    for epoch in range(epochs):
        ranks = chain.from_iterable(passes[epoch * steps : (epoch + 1) * steps])
        expect_all(record, epoch + 1, set(chain.from_iterable(ranks)))


def expect_all(record, epoch, images):
    """Raise Wrong unless all training images are in a set of those of an epoch."""
    train = record.setting.train
    if len(images) < train:
        raise Wrong(
            f"In epoch {epoch} the ranks together saw {len(images)} of {train} "
            "training images."
        )


def quarters(record):
    """No pass has more images than a quarter of the rank's batch; DDP is at work."""
    by_ddp(record)
    share = record.setting.batch // len(record.ranks)  # of a rank
    largest = max(len(first["rows"]) for first, *_ in record.training_passes())
    if largest > share // 4:
        raise Wrong(
            f"A part has {largest} images; {share // 4} fit into memory, a quarter of "
            f"a rank's {share}."
        )


def all_count(record):
    """All images are trained on in each epoch, few of them twice."""
    train = record.setting.train
    epochs = zip(*(record.readings(rank, True) for rank in record.ranks), strict=False)
    for number, reads in enumerate(epochs, start=1):
        taken = list(chain.from_iterable(read["indices"] for read in reads))
        expect_all(record, number, set(taken))
        if len(taken) > train + record.setting.batch:
            raise Wrong(
                f"In epoch {number} the ranks trained on {len(taken)} images, of which "
                f"there are {train}: on some more than once."
            )


def all_trained(record):
    """All weights of the network change in training."""
    first, *_, last = [event["weights"] for event in record.of("weights")]
    stuck = [name for name in first if first[name] == last[name]]
    if stuck:
        raise Wrong(
            f"{', '.join(stuck)} did not change in training, in "
            f"{len(record.of('step'))} steps of the optimizer: no step updates what "
            "the network computes with."
        )


def texts_cut(record):
    """Each rank has a part of every text."""
    batch = record.setting.batch
    for passes in record.training_passes():
        for rank, given in enumerate(passes):
            texts = len(given["rows"])
            if texts != batch:
                raise Wrong(
                    f"Rank {rank} gets {texts} of {batch} texts in a step, expected "
                    "its part of every text: the texts stay cut."
                )


def recomputed(record):
    """Each step computes both blocks, or more, a second time."""
    blocks = 4  # tensors: the weights and biases of two layers
    for rank in record.ranks:
        steps = len(record.of("step", rank))
        again = sum(event["parameters"] for event in record.of("recomputed", rank))
        if again < blocks * steps:
            told = f"{2 * again / blocks / steps:.2g} of the 2 blocks again"
            raise Wrong(
                f"In a step of rank {rank}, the backward pass computes {told}, "
                "expected both."
            )


def sharded(record):
    """Each rank's optimizer holds a part of the weights: gradients of its own."""
    for steps in record.together("before_step"):
        gradients = [step["gradients"] for step in steps]
        if all(one == gradients[0] for one in gradients):
            raise Wrong("All ranks hold the whole network: it is not sharded any more.")
