from tools.lab.checks import (
    OTHER,
    Wrong,
    same_curve,
    same_weights,
    sharded,
    size_of_network,
)


def check(run):
    for flags, setting in ((), {}), (("--hidden", "30"), OTHER):
        record = run(*flags, **setting)
        expected = run.original(*flags, **setting)
        same_curve(record, expected, "stage 7")
        same_weights(record, expected, "stage 7")
        sharded(record, size_of_network(expected))
        for name, ranks in record.writers().items():
            if name.startswith(("model.pth", "metrics.csv")) and len(ranks) > 1:
                who = " and ".join(map(str, ranks))
                raise Wrong(f"{name} is written by ranks {who}, expected one rank.")
