from tools.lab.checks import THREE_RANKS, Wrong
from tools.lab.image_run import flat

COMPLETE = {"train": 128}
# The last batch of a rank has 18 images, in parts of 8, 8 and 2.
INCOMPLETE = {"train": 484}


def check(run):
    # 3 ranks with parts of 4 images, and in the end one of 4 and one of 1
    for setting in COMPLETE, INCOMPLETE, THREE_RANKS:
        record = run(**setting)
        batch = record.setting.batch
        share = batch // len(record.ranks)  # of a rank
        largest = max(map(len, flat(flat(record.trained()))))
        if largest > share // 4:
            raise Wrong(
                f"A part has {largest} images; {share // 4} fit into memory, a quarter "
                f"of a rank's {share}."
            )
        steps = len(record.of("step"))
        expected = 2 * -(-setting["train"] // batch)  # two epochs; rounded up
        if steps != expected:
            raise Wrong(
                f"The optimizer took {steps} steps, expected {expected}: one for each "
                "batch of stage 4, the incomplete last one of an epoch too."
            )
        record.expect_data_parallel()
        record.expect_curve(run.original(**setting), "stage 4")
        record.expect_one_reduction()
