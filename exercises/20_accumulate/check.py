from tools.lab import TRAIN, Wrong, ended, equal_weights, same_curve


def check(run):
    seen = run(reductions=True)
    ended(seen)
    largest = max(len(batch) for batch in seen.epochs(0)[0])
    if largest > 8:
        raise Wrong(f"A part has {largest} images; 8 fit into memory.")
    steps, expected = len(seen.of("step")), 2 * TRAIN // 64
    if steps != expected:
        raise Wrong(
            f"The optimizer took {steps} steps, expected {expected} of 64 images."
        )
    equal_weights(seen)
    same_curve(seen, run.solution(), "stage 1")
    numbers = sum(event["numbers"] for event in seen.of("reduction"))
    weights = sum(value.numel() for value in seen.weights.values())
    if numbers != expected * weights:
        raise Wrong(
            f"The gradients were reduced {numbers / weights / expected:.1f} times a step, "
            "expected once."
        )
