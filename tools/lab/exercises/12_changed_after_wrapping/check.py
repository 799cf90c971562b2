from tools.lab.checks import (
    OTHER,
    Wrong,
    ended,
    equal_weights,
    learns,
    weights,
    wrapped,
)
from tools.lab.image_checks import partitioned

STD = 0.02
BOUND = 784**-0.5  # of what nn.Linear(784) has by default; its spread is nearly STD


def check(run):
    record = run("--lr", "1e-9")  # the weights stay as at the start
    first = start_of_all(record)
    equal_weights(record)
    normal(weights(record))

    record = run("--seed", "1", **OTHER)
    if start_of_all(record) == first:
        raise Wrong("The initial weights are the same with --seed 0 and 1.")
    equal_weights(record)
    partitioned(record, OTHER["train"])
    wrapped(record)
    learns(record)


def start_of_all(record):
    """Return a digest of the weights that all ranks begin with, or raise Wrong."""
    ended(record)
    starts = [first_digest(record, rank) for rank in range(len(record.events))]
    for rank, start in enumerate(starts):
        if start != starts[0]:
            raise Wrong(
                f"In the first step the weights of rank {rank} differ from those of "
                "rank 0."
            )
    return starts[0]


def first_digest(record, rank):
    """Return a digest of the weights that a rank begins with, or None."""
    for event in record.of("pass", rank):
        if event["digest"]:
            return event["digest"]
    return None


def normal(tensors):
    """Raise Wrong unless tensors look like drawn from a normal distribution, by STD."""
    for name, tensor in tensors.items():
        deviation = tensor.std().item()
        count = tensor.numel()
        noise = STD * (2 * count) ** -0.5  # of the deviation of so many numbers
        if not abs(deviation - STD) < max(4 * noise, STD / 100):
            raise Wrong(
                f"The initial values of {name} have a standard deviation of "
                f"{deviation:.4f}, expected {STD}."
            )
        if count > 100 and tensor.abs().max() < BOUND * (1 + 1e-6):
            raise Wrong(
                f"No initial value of {name} is beyond {BOUND:.4f}: they are those of "
                "nn.Linear, not normal ones."
            )
