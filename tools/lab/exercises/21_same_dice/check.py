from tools.lab.checks import EPOCHS, THREE_RANKS, Limit, Wrong

SETTING = THREE_RANKS | {"train": 240}


def check(run):
    record = run(**SETTING, fake="machines")
    record.expect_data_parallel()
    record.expect_start(run.original(**SETTING), "stage 4")
    for rank in record.ranks:
        expect_half(record, rank)
    expect_new_dice(record)
    record.expect_learning()
    again = run(**SETTING)  # the same ranks, on one machine
    again.expect_curve(record, "an earlier run of the same script")
    other = run("--seed", "1", **SETTING)
    if passes(other)[0]["digests"] == passes(record)[0]["digests"]:
        raise Wrong("With --seed 1 rank 0 drops the same units as with --seed 0.")


def passes(record, rank=0, train=True):
    """Return the events of a rank's passes: which units of each image are 0."""
    return [event for event in record.of("units", rank) if event["grad"] == train]


def expect_half(record, rank):
    """Raise Wrong unless training drops about half of the units, evaluation none."""
    events = passes(record, rank)
    if not events:
        raise Limit(
            "The lab did not see which units are dropped: it looks at what the last "
            "nn.Linear gets."
        )
    count = sum(event["count"] for event in events)
    share = sum(event["zeros"] for event in events) / count
    if not 0.45 < share < 0.55:
        raise Wrong(
            f"In training, rank {rank} drops {share:.0%} of the units, expected about "
            "half."
        )
    if any(event["zeros"] for event in passes(record, rank, train=False)):
        raise Wrong(f"In its evaluation rank {rank} drops units, expected none.")


def expect_new_dice(record):
    """Raise Wrong where the same units are dropped for two images."""
    ranks = [passes(record, rank) for rank in record.ranks]
    steps_of_epoch = len(ranks[0]) // EPOCHS
    seen = {}  # which units -> the rank and the step
    for number, events in enumerate(zip(*ranks, strict=True)):
        epoch, step = divmod(number, steps_of_epoch)
        for rank, event in enumerate(events):
            where = f"rank {rank} in step {step + 1} of epoch {epoch + 1}"
            for dropped in event["digests"]:
                if dropped in seen:
                    raise Wrong(
                        f"An image of {where} loses the same units as one of "
                        f"{seen[dropped]}."
                    )
                seen[dropped] = where
