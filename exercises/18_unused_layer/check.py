from tools.lab.checks import Wrong, equal_weights, same_curve, weights


def check(run):
    seen, expected = run(), run.solution()
    if not any(key.startswith("extra") for key in weights(seen)):
        raise Wrong("model.pth has no weights of the layer `extra`.")
    equal_weights(seen)
    same_curve(seen, expected, "the solution")
