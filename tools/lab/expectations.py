"""What an exercise's runs have to be, as exercise.toml says: `expect`.

equal     the run whose curve it has: "solution", "stage", or "one", which is the
          solution in one process
weights   whether model.pth is that run's, too
devices   the fake GPUs on which layers train
learns    whether it is enough that the loss falls
slow_is_wrong  whether what only costs time is a mistake, too
expect    the name of a function below, for what nothing else shows
"""

from itertools import chain

from tools.lab.record import Wrong


def expect(record, run, wanted, options):
    """Raise Wrong unless a record is what is wanted, of a run with these options."""
    if "expect" in wanted:
        EXPECTATIONS[wanted["expect"]](record, run)
    if "devices" in wanted:
        record.expect_devices(*wanted["devices"])
    if wanted.get("learns"):
        record.expect_learning()
    if "equal" in wanted:
        right, what = run.equal(wanted["equal"], options)
        record.expect_curve(right, what)
        if wanted.get("weights"):
            record.expect_weights(right, what)
    if wanted.get("slow_is_wrong"):
        record.expect_no_finding("SLOW")


def loads_anywhere(record, run):
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


def full_steps(record, run):
    """Each step takes the whole batch on all ranks together, but for the last one."""
    train, _ = record.setting.images
    batch = record.setting.batch
    steps = zip(*map(record.steps_of_training, record.ranks), strict=False)
    for number, events in enumerate(steps, start=1):
        size = sum(len(event["rows"]) for event in events)
        if size != batch and number <= train // batch:
            raise Wrong(
                f"Step {number} takes {size} images on all ranks together, expected "
                f"{batch}, as the first line says."
            )


def all_waited_for(record, run):
    """Each rank waits for the collectives that it has begun."""
    for rank in record.ranks:
        begun = [call["name"] for call in record.of("collective_call", rank)]
        for call in record.of("collective", rank):
            begun.remove(call["name"])
        left = [name for name in begun if name != "backward"]
        if left:
            raise Wrong(
                f"On rank {rank} nobody waited for {left[0]}: the loss may be printed "
                "before it is added up."
            )


def no_ddp(record, run):
    """The gradients are exchanged by hand."""
    if record.of("ddp"):
        raise Wrong(
            "The script uses DistributedDataParallel; the task is to do without."
        )


def stream(record, run):
    """The training images come from a stream."""
    train, _ = record.setting.images
    reads = record.readings(0, True)
    by_index = any(read.get("size") == train for read in reads)
    if "IterableDataset" not in record.text or by_index:
        raise Wrong("The training images do not come as a stream any more.")


def quarters(record, run):
    """No pass has more images than a quarter of the rank's batch."""
    share = record.setting.batch // len(record.ranks)  # of a rank
    largest = max(len(event["rows"]) for event in record.steps_of_training())
    if largest > share // 4:
        raise Wrong(
            f"A part has {largest} images; {share // 4} fit into memory, a quarter of "
            f"a rank's {share}."
        )


def all_count(record, run):
    """All images are trained on in each epoch, few of them twice."""
    train, _ = record.setting.images
    epochs = zip(*(record.readings(rank, True) for rank in record.ranks), strict=False)
    for number, reads in enumerate(epochs, start=1):
        taken = list(chain.from_iterable(read["indices"] for read in reads))
        distinct = len(set(taken))
        if distinct < train:
            raise Wrong(
                f"In epoch {number} the ranks together saw {distinct} of {train} "
                "training images."
            )
        if len(taken) > train + record.setting.batch:
            raise Wrong(
                f"In epoch {number} the ranks trained on {len(taken)} images, of which "
                f"there are {train}: on some more than once."
            )


def all_trained(record, run):
    """All weights of the network change in training."""
    first, *_, last = [event["weights"] for event in record.of("weights")]
    stuck = [name for name in first if first[name] == last[name]]
    if stuck:
        raise Wrong(
            f"{', '.join(stuck)} did not change in training, in "
            f"{len(record.of('step'))} steps of the optimizer: no step updates what "
            "the network computes with."
        )


def recomputed(record, run):
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


EXPECTATIONS = {
    function.__name__: function
    for function in (
        loads_anywhere,
        full_steps,
        all_waited_for,
        no_ddp,
        stream,
        quarters,
        all_count,
        all_trained,
        recomputed,
    )
}
