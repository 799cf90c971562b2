from tools.lab.checks import (
    OTHER,
    Wrong,
    close,
    equal_weights,
    learns,
    same_curve,
    wrapped,
)
from tools.lab.image_checks import partitioned, trained

USUAL = {"processes": 2, "batch": 64, "train": 512}


def check(run):
    for setting, rate in (USUAL, 0.1), (OTHER, 0.05):
        record = run("--lr", str(rate), **setting)
        partitioned(record, setting["train"])
        ranks = setting["processes"]
        batch = setting["batch"]
        first, _ = zip(*trained(record), strict=True)  # of the two epochs
        step = sum(len(passes[0]) for passes in first)
        if step not in (batch, ranks * batch):
            raise Wrong(
                f"The {ranks} ranks together take {step} images a step. With "
                f"--batch-size {batch} it has to be {batch}, or {batch} on each rank."
            )
        equal_weights(record)
        fits = rate * step / batch
        rates = record.rates()
        same = {**setting, "batch": step}
        try:  # whatever makes a step as long
            same_curve(
                record, run.solution("--lr", str(fits), **same), f"rate {fits:g}"
            )
        except Wrong:
            off = [n for n, used in enumerate(rates) if not close(used, fits)]
            if not off:
                raise
            last = rates[len(first[0]) :]  # a warm-up is over by then
            if rates != sorted(rates) or not all(close(used, fits) for used in last):
                number = off[-1]
                where = f" in step {number + 1}" if rates[0] != rates[-1] else ""
                raise Wrong(
                    f"The {ranks} ranks together take {step} images a step, with a "
                    f"learning rate of {rates[number]:g}{where}. The rate of {rate:g} "
                    f"is meant for {batch} images."
                ) from None
            wrapped(record)
            learns(record)
