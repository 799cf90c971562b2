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
            expect_mean_gradients(record, rank)
        record.expect_partition()
        record.expect_result(run.original(**setting), "DDP")


def expect_mean_gradients(record, rank):
    """Raise Wrong where a shortcut leads to the same weights as mean gradients."""
    others = set(record.rates(rank)) - {RATE}
    if others:
        raise Wrong(
            f"The learning rate is {max(others)}, expected {RATE}: what the optimizer "
            "gets is to be the mean."
        )
    ours = [step["digest"] for step in record.of("step", rank)]
    if ours != [step["digest"] for step in record.of("step")]:
        raise Wrong(
            f"After a step of the optimizer the weights of rank {rank} differ from "
            "those of rank 0, and before the next they are equal: the ranks average "
            "their weights, not the gradients that the optimizer gets."
        )
