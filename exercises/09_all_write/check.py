from tools.lab.checks import Wrong, ended, same_curve

FILES = ["metrics.csv", "model.pth", "state.pth"]


def check(run):
    seen, expected = run(), run.solution()
    for name, ranks in seen.writers().items():
        if len(ranks) > 1:
            raise Wrong(f"{name} was written by ranks {' and '.join(map(str, ranks))}.")
    ended(seen)
    missing = [name for name in FILES if name not in seen.writers()]
    if missing:
        raise Wrong(f"Nobody wrote {', '.join(missing)}.")
    same_curve(seen, expected, "stage 1")
