from tools.lab.checks import THREE_RANKS, Wrong
from tools.lab.image_run import flat

ODD = {"train": 511, "batch": 64}  # two ranks cannot share them evenly


def check(run):
    for setting in ODD, THREE_RANKS:
        record = run(**setting)
        train = setting["train"]
        batch = setting["batch"]
        record.expect_partition(twice=-train % len(record.ranks))
        first, second = zip(*record.trained(), strict=True)  # the two epochs
        orders = [flat(passes) for passes in first]
        if any(flat(passes) in orders for passes in second):
            raise Wrong("The second epoch has the images in the order of the first.")
        for step, parts in enumerate(zip(*first, strict=False), start=1):
            size = sum(map(len, parts))
            if size != batch and step <= train // batch:
                raise Wrong(
                    f"Step {step} takes {size} images on all ranks together, expected "
                    f"{batch}, as the first line says."
                )
        record.expect_wrapper()
        record.expect_equal_weights()
        record.expect_learning()
