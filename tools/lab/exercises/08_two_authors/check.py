from tools.lab.checks import THREE_RANKS, Wrong, listed

FILES = ["metrics.csv", "model.pth"]


def check(run):
    for setting, where in (
        ({}, ""),
        ({"processes": 1}, " on one process"),
        ({**THREE_RANKS, "fake": "machines"}, " on three machines, one rank each"),
    ):
        record = run(**setting, may_fail=True)
        writers = record.writers()
        for name in FILES:
            ranks = writers.get(name, [])
            if len(ranks) > 1:
                raise Wrong(f"{name} was written by ranks {listed(ranks)}{where}.")
        record.expect_end()
        missing = [name for name in FILES if name not in writers]
        if missing:
            raise Wrong(f"Nobody wrote {', '.join(missing)}{where}.")
        record.expect_partition()
        record.expect_equal_weights()
        if not where:
            record.expect_curve(run.solution(), "stage 1")
            record.expect_weights(run.solution(), "stage 1")
