from itertools import chain

from tools.lab.checks import OTHER, Wrong, equal_weights, learns, wrapped
from tools.lab.image_checks import partitioned, trained

ODD = {"train": 511, "batch": 64}  # two ranks cannot share them evenly


def check(run):
    for setting in ODD, OTHER:
        record = run(**setting)
        train = setting["train"]
        batch = setting["batch"]
        partitioned(record, train, twice=-train % len(record.events))
        first, second = zip(*trained(record), strict=True)
        orders = [list(chain(*passes)) for passes in first]
        if any(list(chain(*passes)) in orders for passes in second):
            raise Wrong("The second epoch has the images in the order of the first.")
        for step, parts in enumerate(zip(*first, strict=False), start=1):
            size = sum(map(len, parts))
            if size != batch and step <= train // batch:
                raise Wrong(
                    f"Step {step} takes {size} images on all ranks together, expected "
                    f"{batch}, as the first line says."
                )
        wrapped(record)
        equal_weights(record)
        learns(record)
