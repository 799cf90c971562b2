from tools.lab.checks import OTHER, Wrong, cut, same_curve, same_weights, weights


def check(run):
    for flags, setting in ((), {}), (("--hidden", "30"), OTHER):
        seen, expected = run(*flags, **setting), run.original(*flags, **setting)
        same_curve(seen, expected, "stage 7")
        same_weights(seen, expected, "stage 7")
        cut(seen, sum(value.numel() for value in weights(expected).values()))
        for name, ranks in seen.writers().items():
            if name.startswith(("model.pth", "metrics.csv")) and len(ranks) > 1:
                who = " and ".join(map(str, ranks))
                raise Wrong(f"{name} is written by ranks {who}, expected one rank.")
