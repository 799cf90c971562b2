from tools.lab.checks import THREE_RANKS, Wrong, is_close

TWO_RANKS = {"processes": 2, "batch": 64}


def check(run):
    for setting, rate in (TWO_RANKS, 0.1), (THREE_RANKS, 0.05):
        record = run("--lr", str(rate), **setting)
        record.expect_partition()
        ranks = setting["processes"]
        batch = setting["batch"]
        first, _ = zip(*record.trained(), strict=True)  # of the two epochs
        step = sum(len(passes[0]) for passes in first)
        if step not in (batch, ranks * batch):
            raise Wrong(
                f"The {ranks} ranks together take {step} images a step. With "
                f"--batch-size {batch} it has to be {batch}, or {batch} on each rank."
            )
        record.expect_equal_weights()
        fits = rate * step / batch
        expected = run.solution("--lr", str(fits), **{**setting, "batch": step})
        try:
            record.expect_curve(expected, f"rate {fits:g}")  # by whatever means
        except Wrong:
            if all(is_close(used, fits) for used in record.rates()):
                raise
            raise Wrong(
                f"The {ranks} ranks together take {step} images a step, with a "
                f"learning rate of {record.rates()[0]:g}; expected {fits:g}."
            ) from None
