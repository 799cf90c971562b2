from tools.lab.checks import THREE_RANKS, Wrong, is_close

TRY = {"epochs": 6, "flags": ("--lr", "0.5")}

FLAGS = "--lr", "0.3"  # the counts go up and down


def check(run):
    # With five test images for three ranks, the count of each, the largest and the mean
    # of their accuracies all lead to other rates than the count of all images.
    for setting in {"epochs": 6}, {**THREE_RANKS, "epochs": 6, "test": 5}:
        record = run(*FLAGS, **setting)
        expected = run.solution(*FLAGS, **setting | {"processes": 1})
        for rank in reversed(record.ranks):
            expect_rates(record, rank, expected)
        record.expect_data_parallel()
        record.expect_curve(expected)
        record.expect_evaluation_partition()


def expect_rates(record, rank, expected):
    """Raise Wrong unless a rank has the learning rates of the solution."""
    rates = zip(record.rates(rank), expected.rates(), strict=False)
    steps_of_epoch = len(expected.rates()) // record.epochs
    for step, (ours, right) in enumerate(rates):
        if not is_close(ours, right):
            raise Wrong(
                f"In epoch {step // steps_of_epoch + 1} rank {rank} has a learning "
                f"rate of {ours:g}; one process, which counts all test images, has "
                f"{right:g}."
            )
