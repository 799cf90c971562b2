from tools.lab.checks import Wrong, same_curve, weights


def check(run):
    seen, expected = run(), run.original()
    same_curve(seen, expected, "stage 7")
    ours = weights(seen)
    for key, value in weights(expected).items():
        if key not in ours:
            raise Wrong(f"model.pth has no {key}.")
        shape, whole = tuple(ours[key].shape), tuple(value.shape)
        if shape != whole:
            raise Wrong(
                f"{key} has the shape {shape} in model.pth, expected {whole}: that is "
                "what one rank keeps of it."
            )
        apart = (ours[key] - value).abs().max().item()
        if not apart <= 1e-12:  # nor is NaN
            raise Wrong(f"{key} in model.pth is off by {apart:.1e} from stage 7.")
