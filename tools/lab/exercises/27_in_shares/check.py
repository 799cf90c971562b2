from tools.lab.record import Wrong


def in_shares(record, runs):
    """Exactly one rank holds each number of optimizer state."""
    size = sum(tensor.numel() for tensor in record.state_dict().values())
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


def has_momentum(record, runs):
    """If a run resumes, all ranks have optimizer state before their first step.

    A ZeroRedundancyOptimizer and its inner optimizer each begin a step.
    """
    for rank in record.ranks if record.setting.resume else []:
        states = record.of("state", rank)
        first = [state["stepped"] for state in states].index(True)
        if not any(state["numbers"] for state in states[:first]):
            raise Wrong(
                f"After --resume, rank {rank} begins without momentum. Save the "
                "momentum of all ranks, and load each rank's share."
            )
