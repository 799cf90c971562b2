from tools.lab.checks import (
    EPOCHS,
    OTHER,
    TRAIN,
    Limit,
    Wrong,
    ended,
    equal_weights,
    learns,
    same_curve,
    wrapped,
)
from tools.lab.fake_cuda import machines
from tools.lab.image_checks import partitioned


def check(run):
    for setting in {}, {**OTHER, "fake": machines}:
        record = run(**setting)
        ended(record)
        partitioned(record, setting.get("train", TRAIN))
        wrapped(record)
        same_start(record, run.original(**setting))
        drops_half(record)
        drops_anew(record)
        equal_weights(record)
        learns(record)
    again = run(**OTHER)  # the same ranks, on one machine
    same_curve(again, record, "an earlier run of the same script")
    other_seed(run("--seed", "1", **OTHER), record)


def same_start(record, expected):
    """Raise Wrong unless the first step begins with the weights of the stage."""
    right = list(expected.of("pass")[0]["digest"].values())
    for rank in range(len(record.events)):
        first = record.of("pass", rank)[0]
        if list(first["digest"].values()) != right:
            raise Wrong(f"The initial weights of rank {rank} are not those of stage 4.")


def passes(record, rank, train=True):
    """Return the events of a rank's passes: which units of each image are 0."""
    return [event for event in record.of("units", rank) if event["grad"] == train]


def drops_half(record):
    """Raise Wrong unless training drops about half of the units, evaluation none."""
    for rank in range(len(record.events)):
        events = passes(record, rank)
        if not events:
            raise Limit(
                "The lab did not see which units are dropped: it looks at what the "
                "last nn.Linear gets."
            )
        count = sum(event["count"] for event in events)
        share = sum(event["zeros"] for event in events) / count
        if not 0.45 < share < 0.55:
            raise Wrong(
                f"In training, rank {rank} drops {share:.0%} of the units, expected "
                "about half."
            )
        if any(event["zeros"] for event in passes(record, rank, train=False)):
            raise Wrong(f"In its evaluation rank {rank} drops units, expected none.")


def drops_anew(record):
    """Raise Wrong where the same units are dropped for two images."""
    ranks = [passes(record, rank) for rank in range(len(record.events))]
    steps_of_epoch = len(ranks[0]) // EPOCHS
    seen = {}  # which units -> the rank and the step
    for number, events in enumerate(zip(*ranks, strict=True)):
        epoch, step = divmod(number, steps_of_epoch)
        place = f"in step {step + 1} of epoch {epoch + 1}"
        for rank, event in enumerate(events):
            for dropped in event["digests"]:
                if dropped in seen:
                    same_units(f"rank {rank} {place}", seen[dropped])
                seen[dropped] = f"rank {rank} {place}"


def same_units(where, before):
    """Raise Wrong with the two places where the same units are dropped."""
    if where == before:
        raise Wrong(f"Two images of {where} lose the same units.")
    raise Wrong(f"An image of {where} loses the same units as one of {before}.")


def other_seed(record, first):
    """Raise Wrong where a rank drops the same units with another seed."""
    ended(record)
    for rank in range(len(record.events)):
        ours = passes(record, rank)[0]["digests"]
        if ours == passes(first, rank)[0]["digests"]:
            raise Wrong(
                f"With --seed 1 rank {rank} drops the same units as with --seed 0."
            )
