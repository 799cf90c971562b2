from tools.lab.checks import (
    OTHER,
    Wrong,
    equal_weights,
    reduced_by_ddp,
    same_curve,
    wrapped,
)
from tools.lab.image_checks import partitioned, trained

COUNT = 484  # images: the last batch of a rank has 18, in parts of 8, 8 and 2


def check(run):
    # 3 ranks with parts of 4 images, and in the end one of 4 and one of 1
    for setting in {"train": COUNT}, OTHER:
        record = run(reductions=True, **setting)
        count = setting["train"]
        batch = setting.get("batch", 64)
        share = batch // len(record.events)  # of a rank
        largest = 0
        for epochs in trained(record):
            for passes in epochs:
                largest = max(largest, *map(len, passes))
        if largest > share // 4:
            raise Wrong(
                f"A part has {largest} images; {share // 4} fit into memory, a quarter "
                f"of a rank's {share}."
            )
        steps = len(record.of("step"))
        expected = 2 * -(-count // batch)  # two epochs; the last batch is incomplete
        if steps != expected:
            raise Wrong(
                f"The optimizer took {steps} steps, expected {expected}: one for each "
                "batch of stage 4, the incomplete last one of an epoch too."
            )
        equal_weights(record)
        wrapped(record)
        partitioned(record, count)
        same_curve(record, run.original(**setting), "stage 4")
        reduced_by_ddp(record)
