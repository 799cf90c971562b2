TRY = {"fake": "one_gpu"}


def check(run):
    setting = {"batch": 100, "fake": "one_gpu"}  # leaves an incomplete batch
    record = run(**setting)
    record.expect_curve(run.solution(**setting), "the solution")
    record.expect_devices("cuda:0")
