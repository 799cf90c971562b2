from tools.lab.checks import THREE_RANKS, Wrong


def check(run):
    for setting in {"epochs": 1, "train": 128}, THREE_RANKS:
        record = run(**setting)
        expected = run.solution(**setting)
        if not any(key.endswith("running_mean") for key in record.state_dict()):
            raise Wrong("model.pth has no running_mean: the BatchNorm layer is gone.")
        record.expect_equal_weights()
        record.expect_wrapper()
        record.expect_curve(expected, "the solution")
        record.expect_weights(expected, "the solution")
