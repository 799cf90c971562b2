from tools.lab.checks import THREE_RANKS, Wrong, first_digests

STD = 0.02


def check(run):
    record = run("--lr", "1e-9")  # the weights stay as at the start
    first = start_of_all(record)
    record.expect_equal_weights()
    for name, tensor in record.state_dict().items():
        expect_normal(name, tensor)
    if start_of_all(run("--lr", "1e-9", attempt=2)) != first:
        raise Wrong("The initial weights differ between two runs with --seed 0.")

    record = run("--seed", "1", **THREE_RANKS)
    if start_of_all(record) == first:
        raise Wrong("The initial weights are the same with --seed 0 and 1.")
    record.expect_equal_weights()
    record.expect_partition()
    record.expect_wrapper()
    record.expect_learning()


def start_of_all(record):
    """Return digests of the weights that all ranks begin with, or raise Wrong."""
    starts = [first_digests(record, rank) for rank in record.ranks]
    for rank, start in enumerate(starts):
        if start != starts[0]:
            raise Wrong(
                f"In the first step the weights of rank {rank} differ from those of "
                "rank 0."
            )
    return starts[0]


def expect_normal(name, tensor):
    """Raise Wrong unless a tensor looks drawn from a normal distribution, by STD."""
    deviation = tensor.std().item()
    noise = STD * (2 * tensor.numel()) ** -0.5  # of the deviation of so many numbers
    if not abs(deviation - STD) < max(4 * noise, STD / 100):
        raise Wrong(
            f"The initial values of {name} have a standard deviation of "
            f"{deviation:.4f}, expected {STD}."
        )
