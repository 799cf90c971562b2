from tools.lab.checks import THREE_RANKS

MACHINES = {**THREE_RANKS, "fake": "machines"}  # one rank each


def check(run):
    for setting in {}, {"processes": 1}, MACHINES:
        record = run(**setting, may_fail=True)
        record.expect_one_writer()
        record.expect_end()
        record.expect_partition()
        record.expect_equal_weights()
        record.expect_result(run.solution(**setting), "stage 1")
