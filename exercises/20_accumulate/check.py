from tools.lab.checks import Wrong, ended, equal_weights, same_curve, weights

COUNT = 484  # images: the last batch of a rank has 18, in parts of 8, 8 and 2


def check(run):
    seen = run(train=COUNT, reductions=True)
    ended(seen)
    largest = max(len(batch) for batch in seen.epochs(0)[0])
    if largest > 8:
        raise Wrong(f"A part has {largest} images; 8 fit into memory.")
    steps, expected = len(seen.of("step")), 2 * (COUNT // 64 + 1)
    if steps != expected:
        raise Wrong(
            f"The optimizer took {steps} steps, expected {expected}: one for each "
            "batch of stage 4, the incomplete last one of an epoch too."
        )
    equal_weights(seen)
    same_curve(seen, run.original(train=COUNT), "stage 4")
    numbers = sum(event["numbers"] for event in seen.of("reduction"))
    size = sum(value.numel() for value in weights(seen).values())
    if numbers != expected * size:
        raise Wrong(
            f"The gradients were reduced {numbers / size / expected:.1f} times a step, "
            "expected once."
        )
