FOUR = {"train": 136, "epochs": 1}
# 3 pairs, and in the end 15 images; another seed
SIX = {"processes": 6, "batch": 48, "train": 111, "epochs": 1}


def check(run):
    for flags, setting in ((), FOUR), (("--seed", "7"), SIX):
        record = run(*flags, **setting)
        # one pair computes the same, in a third of the time
        expected = run.original(*flags, **setting | {"processes": 2})
        record.expect_curve(expected, "stage 10")
        record.expect_weights(expected, "stage 10")
        record.expect_shards(expected.size())
