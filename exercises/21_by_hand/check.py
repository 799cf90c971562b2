from tools.lab.checks import (
    OTHER,
    TRAIN,
    Wrong,
    ended,
    equal_weights,
    same_curve,
    same_weights,
    shared_out,
)

RATE = 0.1  # of the stage


def check(run):
    for setting in {}, OTHER:
        seen = run(**setting)
        ended(seen)
        if seen.of("ddp"):
            raise Wrong(
                "The script uses DistributedDataParallel; the task is to do without."
            )
        equal_weights(seen)
        rates = {rate for rank in range(len(seen.events)) for rate in seen.rates(rank)}
        if rates - {RATE}:
            raise Wrong(
                f"The learning rate is {max(rates - {RATE})}, expected {RATE}: what the "
                "optimizer gets is to be the mean."
            )
        shared_out(seen, setting.get("train", TRAIN))
        expected = run.original(**setting)
        same_curve(seen, expected, "DDP")
        same_weights(seen, expected, "DDP")
