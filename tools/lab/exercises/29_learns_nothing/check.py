from tools.lab.checks import THREE_RANKS


def check(run):
    for setting in {}, THREE_RANKS:
        record = run(**setting)
        expected = run.original(**setting)
        record.expect_all_trained()
        record.expect_shards(expected.size())
        record.expect_partition()
        record.expect_curve(expected, "stage 7")
        record.expect_weights(expected, "stage 7")
