import torch

from tools.lab import Wrong, same_curve


def check(run):
    seen, expected = run(), run.solution()
    same_curve(seen, expected, "stage 3")
    if not isinstance(seen.weights, dict):
        raise Wrong("model.pth holds no state_dict, a dictionary of tensors.")
    if list(seen.weights) != list(expected.weights):
        raise Wrong(
            f"The keys of model.pth begin with {next(iter(seen.weights), None)!r}; stage 1 "
            f"looks for {next(iter(expected.weights))!r}."
        )
    for key, value in expected.weights.items():
        if not torch.allclose(seen.weights[key], value):
            raise Wrong(f"{key} in model.pth are not the trained weights.")
