from tools.lab.checks import THREE_RANKS, Wrong
from tools.lab.image_run import flat


def check(run):
    for seed, setting in (0, {}), (1, {**THREE_RANKS, "epochs": 3}):
        record = run("--seed", str(seed), **setting)
        expected = run.solution("--seed", str(seed), **setting)
        record.expect_partition()
        ours = first_batches(record)
        theirs = first_batches(expected)
        if ours[0] == ours[1]:
            raise Wrong(
                "Epoch 2 has the images in the order of epoch 1: images "
                f"{ours[0][:4]} … are in the first batch of both."
            )
        for epoch, batch in reversed(list(enumerate(ours))):
            if batch != theirs[epoch]:
                other = theirs.index(batch) + 1 if batch in theirs else None
                order = f"the order of epoch {other}" if other else "another order"
                raise Wrong(
                    f"With --seed {seed}, epoch {epoch + 1} takes the images in "
                    f"{order}, expected the order of epoch {epoch + 1} in stage 1."
                )
        record.expect_equal_weights()
        record.expect_curve(expected, "stage 1")


def first_batches(record):
    """Return the images in the first batch of each epoch, of all ranks, sorted."""
    epochs = zip(*record.trained(), strict=True)
    return [sorted(flat(passes[0] for passes in ranks)) for ranks in epochs]
