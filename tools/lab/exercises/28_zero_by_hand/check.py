from tools.lab.checks import (
    OTHER,
    TRAIN,
    Wrong,
    ended,
    equal_weights,
    same_curve,
    same_weights,
    size_of_network,
    wrapped,
)
from tools.lab.image_checks import partitioned

FILES = "model.pth", "metrics.csv", "state.pth"
TRY = {"keep": FILES}


def state_sharded(record, size):
    """Raise Wrong unless each number of the optimizer's state is on one rank."""
    held = []
    for rank in range(len(record.events)):
        steps = record.of("step", rank)
        held.append(max((step["state"] for step in steps), default=0))
    if not any(held):
        raise Wrong(
            "No rank keeps optimizer state. The lab looks for it in the `state` of a "
            "torch.optim.Optimizer after its step()."
        )
    for rank, count in enumerate(held):
        if count >= size:
            raise Wrong(
                f"Rank {rank} keeps {count} numbers of optimizer state, for all of the "
                f"{size} weights; expected those of its share."
            )
        if not count:
            raise Wrong(
                f"Rank {rank} keeps no optimizer state; expected that of its share."
            )
    if not size <= sum(held) < size + len(held):  # equal parts may need to be filled
        raise Wrong(
            f"The ranks keep {' + '.join(map(str, held))} = {sum(held)} numbers of "
            f"optimizer state, expected {size}: each on one rank."
        )


def momentum_resumed(record):
    """Raise Wrong unless each rank's first step after --resume has state to begin with.

    A ZeroRedundancyOptimizer and the optimizer in it each begin a step.
    """
    for rank in range(len(record.events)):
        held = []
        for event in record.events[rank]:
            if event["kind"] == "before_step":
                held.append(event["state"])
            if event["kind"] == "step":
                break
        if not any(held):
            raise Wrong(
                f"After --resume rank {rank} begins without any momentum. state.pth "
                "has to hold the momentum of all ranks, and each rank takes its share."
            )


def check(run):
    record = run()
    expected = run.solution(processes=1)
    equal_weights(record, "pass")
    wrapped(record)
    partitioned(record, TRAIN)
    same_curve(record, expected, "one process")
    same_weights(record, expected)
    size = size_of_network(expected)
    state_sharded(record, size)

    expected = run.solution(**OTHER | {"processes": 1})
    record = run(**OTHER, resume=1, keep=FILES)  # state.pth has to have all
    ended(record)
    trained = len(record.passes())
    batches = len(expected.passes()) // 2
    if trained != batches:
        raise Wrong(
            f"After --resume rank 0 trained on {trained} batches, expected {batches}: "
            "one epoch."
        )
    equal_weights(record, "pass")
    state_sharded(record, size)
    momentum_resumed(record)
    same_curve(record, expected, "one process that is not interrupted and resumed")
