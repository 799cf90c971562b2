from tools.lab.checks import OTHER, Wrong, equal_weights, same_curve
from tools.lab.image_checks import partitioned, trained


def check(run):
    record = run()
    partitioned(record)
    for rank, (first, second) in enumerate(trained(record)):
        if first == second:
            raise Wrong(
                f"Epoch 2 has the images in the order of epoch 1, on rank {rank}: "
                f"{first[0][:4]} … first in both."
            )
    for flags, setting in ((), {}), (("--seed", "1"), {**OTHER, "epochs": 3}):
        record = run(*flags, **setting)
        equal_weights(record)
        same_curve(record, run.solution(*flags, **setting), "stage 1")
