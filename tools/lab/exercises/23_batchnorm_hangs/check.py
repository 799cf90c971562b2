from tools.lab.checks import THREE_RANKS


def check(run):
    for setting in {"epochs": 1, "train": 128}, THREE_RANKS:
        record = run(**setting)
        record.expect_data_parallel()
        record.expect_result(run.solution(**setting), "the solution")
