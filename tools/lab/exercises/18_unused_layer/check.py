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
    for setting in {"train": 192, "epochs": 1}, OTHER:  # 3 steps; 11 an epoch
        record = run(**setting)
        expected = run.solution(**setting)
        if len(weights(record)) < len(weights(expected)):
            raise Wrong("model.pth has no weights of the layer `extra`.")
        equal_weights(record)
        wrapped(record)
        same_curve(record, expected, "the solution")
        same_weights(record, expected, "the solution")
