from tools.lab.record import Limit, Wrong
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
        expect_half(record, rank)
    record.expect_learning()
    other = run("--seed", "1", **SETTING)
    if dice(other) == dice(record):
        raise Wrong("With --seed 1 rank 0 drops the same units as with --seed 0.")


def dice(record):
    """Return digests of the generators from which rank 0 first draws in training."""
    return record.steps_of_training()[0]["drawn"]


def expect_half(record, rank):
    """Raise Wrong unless training drops about half of the units, evaluation none."""
    passes = {True: [], False: []}
    for event in record.of("units", rank):
        passes[event["grad"]].append(event)
    if not passes[True]:
        raise Limit(
            "The lab did not see which units are dropped: it looks at what the last "
            "nn.Linear gets."
        )
    count = sum(event["count"] for event in passes[True])
    share = sum(event["zeros"] for event in passes[True]) / count
    if not 0.45 < share < 0.55:
        raise Wrong(
            f"In training, rank {rank} drops {share:.0%} of the units, expected about "
            "half."
        )
    if any(event["zeros"] for event in passes[False]):
        raise Wrong(f"In its evaluation rank {rank} drops units, expected none.")
