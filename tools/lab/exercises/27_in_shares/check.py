from tools.lab.checks import THREE_RANKS, Wrong, listed


def check(run):
    record = run()
    expected = run.solution(processes=1)
    record.expect_data_parallel()
    record.expect_result(expected)
    size = expected.size()
    expect_state_in_shares(record, size)

    record = run(**THREE_RANKS, resume=1)
    expected = run.solution(**THREE_RANKS | {"processes": 1})
    record.expect_data_parallel()
    expect_state_in_shares(record, size)
    for rank in record.ranks:
        expect_momentum(record, rank)
    record.expect_curve(expected, "one process that is not interrupted and resumed")


def expect_state_in_shares(record, size):
    """Raise Wrong unless each number of the optimizer's state is on one rank."""
    held = []
    for rank in record.ranks:
        steps = record.of("step", rank)
        held.append(max((step["state"] for step in steps), default=0))
    for rank, count in enumerate(held):
        if not 0 < count < size:
            raise Wrong(
                f"Rank {rank} keeps {count} numbers of optimizer state, expected its "
                f"share of {size}. The lab counts what is in the `state` of a "
                "torch.optim.Optimizer after its step()."
            )
    if not size <= sum(held) < size + len(held):  # equal parts may need to be filled
        raise Wrong(
            f"The ranks together keep optimizer state for {sum(held)} numbers; the "
            f"network has {size}. (The ranks keep {listed(held)}.)"
        )


def expect_momentum(record, rank):
    """Raise Wrong unless a rank's first step after --resume has state to begin with.

    A ZeroRedundancyOptimizer and the optimizer in it each begin a step.
    """
    kinds = [event["kind"] for event in record.events[rank]]
    first = record.events[rank][: kinds.index("step")]
    if not any(e["state"] for e in first if e["kind"] == "before_step"):
        raise Wrong(
            f"After --resume rank {rank} begins without any momentum. What is saved "
            "has to hold that of all ranks, and each rank takes its share."
        )
