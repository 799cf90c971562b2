from tools.lab.checks import Wrong, equal_weights, learns, weights


def check(run):
    still = run("--lr", "1e-9")  # the weights stay what they were at the start
    layer = weights(still)["layers.1.weight"]
    equal_weights(still)
    deviation = layer.std().item()
    if abs(deviation - 0.02) > 1e-3:
        raise Wrong(
            f"The initial weights have a standard deviation of {deviation:.4f}, "
            "expected 0.02."
        )
    usual = run()
    learns(usual)
    equal_weights(usual)
