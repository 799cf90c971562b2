import torch

from tools.lab.checks import Wrong, same_curve, weights


def check(run):
    seen, expected = run(), run.solution()
    same_curve(seen, expected, "stage 3")
    ours, theirs = weights(seen), weights(expected)
    if list(ours) != list(theirs):
        raise Wrong(
            f"The keys of model.pth begin with {next(iter(ours))!r}; stage 1 looks for "
            f"{next(iter(theirs))!r}."
        )
    for key, value in theirs.items():
        if not torch.allclose(ours[key], value):
            raise Wrong(f"{key} in model.pth are not the trained weights.")
