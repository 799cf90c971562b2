FOUR = {"train": 136, "epochs": 1}
# 3 pairs, and in the end 15 images; another seed
SIX = {"processes": 6, "batch": 48, "train": 111, "epochs": 1}


def check(run):
    record = run(**FOUR)
    expected = run.original(**FOUR)
    record.expect_start(expected, "stage 10")
    expect_training(record, expected)
    # one pair computes the same as three, in a third of the time
    expected = run.original("--seed", "7", **SIX | {"processes": 2})
    expect_training(run("--seed", "7", **SIX), expected)


def expect_training(record, expected):
    """Raise Wrong unless a run ends as another one does, sharded."""
    record.expect_result(expected, "stage 10")
    record.expect_shards(expected.size())
