from tools.lab.checks import Wrong

TRY = {"fake": "one_gpu"}


def check(run):
    setting = {"batch": 100, "fake": "one_gpu"}  # leaves an incomplete batch
    record = run(**setting)
    record.expect_curve(run.solution(**setting), "the solution")
    where = record.devices()
    if where != ["cuda:0"]:
        raise Wrong(
            f"The network trained on {' and '.join(where)}, not on the GPU, cuda:0."
        )
