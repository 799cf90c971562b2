from tools.lab.checks import THREE_RANKS, Wrong

ODD = {"train": 511, "batch": 64}  # two ranks cannot share them evenly


def check(run):
    for setting in ODD, THREE_RANKS:
        record = run(**setting)
        train = setting["train"]
        batch = setting["batch"]
        record.expect_data_parallel(twice=-train % len(record.ranks))
        record.expect_new_order()
        first, _ = zip(*record.trained(), strict=True)  # of the two epochs
        for step, parts in enumerate(zip(*first, strict=False), start=1):
            size = sum(map(len, parts))
            if size != batch and step <= train // batch:
                raise Wrong(
                    f"Step {step} takes {size} images on all ranks together, expected "
                    f"{batch}, as the first line says."
                )
        record.expect_learning()
