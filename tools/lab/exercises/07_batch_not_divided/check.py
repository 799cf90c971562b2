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
            steps = len(first[0])
            expect_warm_up(record, steps, fits, f"take {step} images a step")
            record.expect_wrapper()
            record.expect_learning()


def expect_warm_up(record, steps, fits, taken):
    """Raise Wrong unless the rates rise in the first epoch, of `steps`, to one fits."""
    rates = record.rates()
    if rates == sorted(rates) and all(is_close(used, fits) for used in rates[steps:]):
        return
    number = [n for n, used in enumerate(rates) if not is_close(used, fits)][-1]
    where = f" in step {number + 1}" if rates[0] != rates[-1] else ""
    raise Wrong(
        f"The {len(record.ranks)} ranks together {taken}, with a learning rate of "
        f"{rates[number]:g}{where}; expected {fits:g}."
    ) from None
