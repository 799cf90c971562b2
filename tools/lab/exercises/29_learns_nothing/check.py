from tools.lab.checks import THREE_RANKS


def check(run):
    for setting in {}, THREE_RANKS:
        record = run(**setting)
        expected = run.original(**setting)
        record.expect_all_trained()
        record.expect_shards(expected.size())
        record.expect_partition()
        record.expect_result(expected, "stage 7")
