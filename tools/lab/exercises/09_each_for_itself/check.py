from tools.lab.checks import THREE_RANKS


def check(run):
    for setting in {}, THREE_RANKS:
        record = run(**setting)
        record.expect_equal_weights()
        record.expect_partition()
        record.expect_curve(run.solution(**setting), "stage 1")
        record.expect_wrapper()
        record.expect_one_reduction()
