TRY = {"fake": "two_gpus"}


def check(run):
    setting = {"batch": 100, "fake": "two_gpus"}  # leaves an incomplete batch
    record = run(**setting)
    record.expect_all_trained()
    record.expect_devices("cuda:0", "cuda:1")
    record.expect_result(run.solution(**setting), "the solution")
