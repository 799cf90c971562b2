from tools.lab.checks import THREE_RANKS, Wrong

BLOCKS = 4  # tensors: the weights and biases of two layers


def check(run):
    for setting in {}, THREE_RANKS:
        record = run(**setting)
        record.expect_data_parallel()
        for rank in record.ranks:
            expect_second_pass(record, rank)
        record.expect_result(run.solution(**setting | {"processes": 1}))


def expect_second_pass(record, rank):
    """Raise Wrong unless each step computes both blocks, or more, a second time."""
    steps = len(record.of("step", rank))
    again = sum(len(event["digest"]) for event in record.of("recomputed", rank))
    if again < BLOCKS * steps:
        blocks = 2 * again / BLOCKS / steps
        raise Wrong(
            f"In a step of rank {rank}, the backward pass computes {blocks:.2g} of the "
            "2 blocks again, expected both."
        )
