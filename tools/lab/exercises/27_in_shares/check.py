from tools.lab.comparison import expect_curve, expect_weights
from tools.lab.expectations import by_ddp, goes_on
from tools.lab.record import Wrong
from tools.lab.setting import THREE_RANKS


def check(run):
    record = run()
    expected = run.solution(processes=1)
    by_ddp(record)
    expect_curve(record, expected)
    expect_weights(record, expected)
    size = sum(tensor.numel() for tensor in expected.state_dict().values())
    expect_state_in_shares(record, size)

    record = run(**THREE_RANKS, resume=1, killed=True)
    expected = run.solution(**THREE_RANKS | {"processes": 1})
    expect_state_in_shares(record, size)
    goes_on(record)
    for rank in record.ranks:
        expect_momentum(record, rank)
    expect_curve(record, expected, "one process that never stops")


def expect_state_in_shares(record, size):
    """Raise Wrong unless exactly one rank holds each number of optimizer state."""
    held = []
    for rank in record.ranks:
        states = record.of("state", rank)
        held.append(max((state["numbers"] for state in states), default=0))
    for rank, count in enumerate(held):
        if not 0 < count < size:
            raise Wrong(
                f"Rank {rank} keeps {count} numbers of optimizer state, expected its "
                f"share of {size}. The lab counts the `state` of a "
                "torch.optim.Optimizer after its step()."
            )
    if not size <= sum(held) < size + len(held):  # equal parts may need padding
        raise Wrong(
            f"The ranks together keep optimizer state for {sum(held)} numbers, but "
            f"the network has {size}. (The ranks keep {held}.)"
        )


def expect_momentum(record, rank):
    """Raise Wrong unless a rank has optimizer state before its first step.

    A ZeroRedundancyOptimizer and its inner optimizer each begin a step.
    """
    states = record.of("state", rank)
    first = [state["stepped"] for state in states].index(True)
    if not any(state["numbers"] for state in states[:first]):
        raise Wrong(
            f"After --resume, rank {rank} begins without momentum. Save the momentum "
            "of all ranks, and load each rank's share."
        )
