from tools.lab import Wrong, ended, equal_weights, same_curve


def check(run):
    seen, expected = run(), run.solution()
    ended(seen)
    if not any(key.startswith("extra") for key in seen.weights or []):
        raise Wrong("model.pth has no weights of the layer `extra`.")
    equal_weights(seen)
    same_curve(seen, expected, "the solution")
