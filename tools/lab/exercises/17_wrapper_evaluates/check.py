from tools.lab.checks import (
    OTHER,
    Wrong,
    equal_weights,
    same_curve,
    same_weights,
    weights,
    wrapped,
)


def check(run):
    for setting in {"epochs": 1, "train": 128}, OTHER:
        record = run(**setting)
        expected = run.solution(**setting)
        if not any(key.endswith("running_mean") for key in weights(record)):
            raise Wrong("model.pth has no running_mean: the BatchNorm layer is gone.")
        equal_weights(record)
        wrapped(record)
        same_curve(record, expected, "the solution")
        same_weights(record, expected, "the solution")
