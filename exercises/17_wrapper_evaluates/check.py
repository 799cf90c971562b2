from tools.lab.checks import Wrong, equal_weights, same_curve, weights


def check(run):
    seen, expected = run(), run.solution()
    if not any(key.endswith("running_mean") for key in weights(seen)):
        raise Wrong("model.pth has no running_mean: the BatchNorm layer is gone.")
    equal_weights(seen)
    same_curve(seen, expected, "the solution")
