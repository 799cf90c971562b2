from tools.lab.checks import THREE_RANKS

TRY = {"resume": 1}


def check(run):
    for setting, before, epochs, flags in (
        ({}, 1, 3, ()),
        (THREE_RANKS, 2, 4, ("--resume",)),  # the first run has nothing to resume
    ):
        record = run(*flags, **setting, epochs=epochs, resume=before)
        record.expect_data_parallel()
        expected = run.solution(**setting | {"processes": 1}, epochs=epochs)
        record.expect_curve(expected, "a run that was never stopped")
