from tools.lab.checks import THREE_RANKS, Wrong, listed

FILES = "model.pth", "metrics.csv", "state.pth"
TRY = {"keep": FILES}


def check(run):
    record = run()
    expected = run.solution(processes=1)
    record.expect_equal_weights("pass")
    record.expect_wrapper()
    record.expect_partition()
    record.expect_curve(expected)
    record.expect_weights(expected)
    size = expected.size()
    expect_state_in_shares(record, size)

    expected = run.solution(**THREE_RANKS | {"processes": 1})
    record = run(**THREE_RANKS, resume=1, keep=FILES)  # state.pth has to have all
    trained = len(record.passes())
    batches = len(expected.passes()) // 2
    if trained != batches:
        raise Wrong(
            f"After --resume rank 0 trained on {trained} batches, expected {batches}: "
            "one epoch."
        )
    record.expect_equal_weights("pass")
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
    if not any(held):
        raise Wrong(
            "No rank keeps optimizer state. The lab looks for it in the `state` of a "
            "torch.optim.Optimizer after its step()."
        )
    for rank, count in enumerate(held):
        if not 0 < count < size:
            raise Wrong(
                f"Rank {rank} keeps {count or 'no'} numbers of optimizer state, of "
                f"{size} for all weights; expected those of its share."
            )
    if not size <= sum(held) < size + len(held):  # equal parts may need to be filled
        how = "on several ranks" if sum(held) > size else "on no rank"
        raise Wrong(
            f"The ranks together keep optimizer state for {sum(held)} numbers; the "
            f"network has {size}. The state of some weights is {how}. (The ranks keep "
            f"{listed(held)}.)"
        )


def expect_momentum(record, rank):
    """Raise Wrong unless a rank's first step after --resume has state to begin with.

    A ZeroRedundancyOptimizer and the optimizer in it each begin a step.
    """
    kinds = [event["kind"] for event in record.events[rank]]
    first = record.events[rank][: kinds.index("step")]
    if not any(e["state"] for e in first if e["kind"] == "before_step"):
        raise Wrong(
            f"After --resume rank {rank} begins without any momentum. state.pth has to "
            "hold the momentum of all ranks, and each rank takes its share."
        )
