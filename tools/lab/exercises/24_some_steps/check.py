from tools.lab.checks import THREE_RANKS


def check(run):
    for setting in {"train": 192, "epochs": 1}, THREE_RANKS:  # 3 steps; 11 an epoch
        record = run(**setting)
        record.expect_data_parallel()
        record.expect_all_trained()
        record.expect_result(run.solution(**setting), "the solution")
