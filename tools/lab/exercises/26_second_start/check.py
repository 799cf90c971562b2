from tools.lab.checks import THREE_RANKS, Wrong

TRY = {"resume": 1}


def check(run):
    for setting, before, epochs, flags in (
        ({}, 1, 3, ()),
        (THREE_RANKS, 2, 4, ("--resume",)),  # the first run has nothing to resume
    ):
        record = run(*flags, **setting, epochs=epochs, resume=before)
        whole = run.solution(**setting | {"processes": 1}, epochs=epochs)
        steps = len(whole.of("step")) // epochs
        for rank in record.ranks:
            trained = len(record.of("step", rank)) / steps
            if trained != epochs - before:
                raise Wrong(
                    f"With {before} of {epochs} epochs done, rank {rank} trained "
                    f"{trained:g} epochs, expected {epochs - before}."
                )
        record.expect_wrapper()
        record.expect_partition()
        record.expect_equal_weights()
        record.expect_curve(whole, "a run that was never stopped")
