from tools.lab.record import Wrong


def drops(record, runs):
    """Training drops half of the units, other ones for each image."""
    record.expect_learning()
    record.expect_no_finding(but=["random"])
    expect_half(record)
    expect_different(record)


def again(record, runs):
    """The same command gives the same curve; another seed drops other units."""
    same = vars(record.setting)
    if runs(**same | {"fake": "dropout_again"}).rows != record.rows:
        raise Wrong("The same command gives a different curve the second time.")
    seeded = same | {"flags": ["--seed", "1"]}
    other = runs(**seeded)
    expected = runs.original(**seeded | {"fake": ""})
    for rank in other.ranks:
        if other.initial_weights(rank) != expected.initial_weights(rank):
            raise Wrong(
                f"Before the first step, rank {rank}'s weights are not the same as in "
                "stage 4."
            )
    if kept(other, True)[0] == kept(record, True)[0]:
        raise Wrong("With --seed 1 rank 0 drops the same units as with --seed 0.")


def kept(record, training):
    """Return each image's kept units on all ranks, as strings of 0 and 1."""
    found = []
    for rank in record.ranks:
        for event in record.of("gpu hidden", rank):
            if event["training"] == training:
                found += event["kept"]
    return found


def expect_half(record):
    """Raise Wrong unless training drops half of the units, and evaluation none."""
    units = "".join(kept(record, True))
    share = units.count("0") / len(units)
    if abs(share - 0.5) > 0.02:
        raise Wrong(f"In training {share:.1%} of the units become 0, expected half.")
    if "0" in "".join(kept(record, False)):
        raise Wrong("Units are dropped in the evaluation.")


def expect_different(record):
    """Raise Wrong if two training images keep the same units."""
    units = kept(record, True)
    alike = len(units) - len(set(units))
    if alike:
        raise Wrong(f"{alike} of {len(units)} images lose the same units as another.")
