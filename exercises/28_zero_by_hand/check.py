import tempfile
from pathlib import Path

from tools.lab.checks import Wrong, ended, equal_weights, same_curve, weights
from tools.run import compare


def shared(seen, size):
    """Raise Wrong unless each number of the optimizer's state is on one rank."""
    held = [seen.of("step", rank)[-1]["state"] for rank in range(len(seen.events))]
    for rank, count in enumerate(held):
        if count >= size:
            raise Wrong(
                f"Rank {rank} keeps {count} numbers of optimizer state, for all of the "
                f"{size} weights; expected those of its share."
            )
    if not size <= sum(held) < size + len(held):  # equal parts may need to be filled
        raise Wrong(
            f"The ranks keep {' + '.join(map(str, held))} = {sum(held)} numbers of "
            f"optimizer state, expected {size}: each on one rank."
        )


def check(run):
    seen, expected = run(), run.solution(processes=1)
    ended(seen)
    equal_weights(seen, "pass")
    same_curve(seen, expected, "one process")
    ours, theirs = weights(seen), weights(expected)
    for key, value in theirs.items():
        if not (ours[key] - value).abs().max().item() <= 1e-12:  # nor is NaN
            raise Wrong(f"{key} in model.pth differs from that of one process.")
    size = sum(value.numel() for value in theirs.values())
    shared(seen, size)

    flags, train = ("--batch-size", "63"), 510  # what three ranks divide evenly
    expected = run.solution(*flags, processes=1, train=train)
    with tempfile.TemporaryDirectory() as folder:
        more = *flags, "--out", folder
        ended(run(*more, "--epochs", "1", processes=3, train=train))
        seen = run(*more, "--resume", processes=3, train=train)
        ended(seen)
        seen.rows = compare.read(Path(folder) / "metrics.csv")
    equal_weights(seen, "pass")
    what = "one process that is not interrupted and resumed"
    same_curve(seen, expected, what)
    shared(seen, size)
