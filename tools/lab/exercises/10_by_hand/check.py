from tools.lab.checks import THREE_RANKS, Wrong

RATE = 0.1  # of the stage


def check(run):
    for setting in {}, THREE_RANKS:
        record = run(**setting)
        if record.of("ddp"):
            raise Wrong(
                "The script uses DistributedDataParallel; the task is to do without."
            )
        record.expect_equal_weights()
        for rank in record.ranks:
            others = set(record.rates(rank)) - {RATE}
            if others:
                raise Wrong(
                    f"The learning rate is {max(others)}, expected {RATE}: what the "
                    "optimizer gets is to be the mean."
                )
        record.expect_partition()
        expected = run.original(**setting)
        record.expect_curve(expected, "DDP")
        record.expect_weights(expected, "DDP")
