from tools.lab.checks import (
    OTHER,
    Wrong,
    ended,
    equal_weights,
    same_curve,
    same_weights,
    weights,
    wrapped,
)

BLOCKS = 4  # tensors: the weights and biases of two layers


def check(run):
    for setting in {}, OTHER:
        record = run(**setting)
        expected = run.solution(**setting | {"processes": 1})
        ended(record)
        wrapped(record)
        for rank in range(len(record.events)):
            computed_again(record, rank)
        equal_weights(record)
        same_curve(record, expected)
        same_weights(record, expected)


def computed_again(record, rank):
    """Raise Wrong unless each step computes both blocks a second time.

    In a backward pass they are called by themselves, which counts as another pass.
    """
    steps = len(record.of("step", rank))
    passes = [event for event in record.of("pass", rank) if event["grad"]]
    computed = sum(len(event["digest"]) for event in passes)
    again = computed - steps * len(weights(record))
    if again < BLOCKS * steps:
        blocks = 2 * again / BLOCKS / steps
        raise Wrong(
            f"In a step of rank {rank}, the backward pass computes {blocks:.2g} of the "
            "2 blocks again, expected both."
        )
