from tools.lab.checks import (
    OTHER,
    Wrong,
    equal_weights,
    same_curve,
    shared_out,
    trained,
)


def check(run):
    seen = run()
    shared_out(seen)
    for rank, (first, second) in enumerate(trained(seen)):
        if first == second:
            raise Wrong(
                f"Epoch 2 has the images in the order of epoch 1, on rank {rank}: "
                f"{first[0][:4]} … first in both."
            )
    for flags, setting in ((), {}), (("--seed", "1"), {**OTHER, "epochs": 3}):
        seen = run(*flags, **setting)
        equal_weights(seen)
        same_curve(seen, run.solution(*flags, **setting), "stage 1")
