from tools.lab.checks import Wrong, ended, equal_weights, same_curve, weights


def check(run):
    seen = run()
    ended(seen)
    if seen.of("ddp"):
        raise Wrong(
            "The script uses DistributedDataParallel; the task is to do without."
        )
    equal_weights(seen)
    expected = run.original()
    same_curve(seen, expected, "DDP")
    ours = weights(seen)
    for key, value in weights(expected).items():
        apart = (ours[key] - value).abs().max().item()
        if not apart <= 1e-12:  # nor is NaN
            raise Wrong(f"{key} is off by {apart:.1e} from DDP, at most 1e-12 allowed.")
