from tools.lab.checks import THREE_RANKS, Wrong


def check(run):
    for setting in {"train": 192, "epochs": 1}, THREE_RANKS:  # 3 steps; 11 an epoch
        record = run(**setting)
        expected = run.solution(**setting)
        if len(record.state_dict()) < len(expected.state_dict()):
            raise Wrong("model.pth has no weights of the layer `extra`.")
        record.expect_equal_weights()
        record.expect_wrapper()
        record.expect_all_trained()
        record.expect_curve(expected, "the solution")
        record.expect_weights(expected, "the solution")
