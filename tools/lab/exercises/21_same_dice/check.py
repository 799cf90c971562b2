from tools.lab.record import Wrong
from tools.lab.setting import THREE_RANKS

SETTING = THREE_RANKS | {"train": 240}


def check(run):
    record = run(**SETTING, fake="machines")
    expected = run.original(**SETTING)
    for rank in record.ranks:
        if record.initial_weights(rank) != expected.initial_weights(rank):
            raise Wrong(
                f"Before the first step, the weights of rank {rank} are not those of "
                "stage 4."
            )
        if not drawn(record, rank):
            raise Wrong(
                f"In training, rank {rank}'s forward pass draws no random numbers "
                "from PyTorch's own generator, as nn.Dropout does."
            )
    record.expect_learning()
    states = []
    for rank in record.ranks:
        states += [str(state) for state in drawn(record, rank)]
    if len(set(states)) < len(states):
        raise Wrong(
            "Random numbers come back: a rank draws in an epoch what some rank draws "
            "in a different epoch."
        )
    if run(**SETTING, fake="machines").rows != record.rows:
        raise Wrong("The same command gives a different curve the second time.")
    other = run(**SETTING, flags=["--seed", "1"])
    if drawn(other, 0)[0] == drawn(record, 0)[0]:
        raise Wrong("With --seed 1 rank 0 drops the same units as with --seed 0.")


def drawn(record, rank):
    """Return digests of the generators from which a rank's passes in training draw."""
    passes = record.of("pass", rank)
    return [one["drawn"] for one in passes if one["drawn"] and one["grad"]]
