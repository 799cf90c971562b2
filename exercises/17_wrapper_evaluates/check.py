from tools.lab import Wrong, ended, equal_weights, same_curve


def check(run):
    seen, expected = run(), run.solution()
    ended(seen)
    keys = list(seen.weights or [])
    if not any(key.endswith("running_mean") for key in keys):
        raise Wrong("model.pth has no running_mean: the BatchNorm layer is gone.")
    equal_weights(seen)
    same_curve(seen, expected, "the solution")
