from tools.lab.checks import THREE_RANKS, Wrong

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
        fits = f"{rate * step / batch:g}"
        expected = run.solution("--lr", fits, **{**setting, "batch": step})
        what = f"{step} images a step, as here, with a learning rate of {fits}"
        record.expect_curve(expected, what)
