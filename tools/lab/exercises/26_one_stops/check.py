from tools.lab.checks import Wrong, ended, same_curve, same_weights

TRY = {"epochs": 6, "flags": ["--target", "0.5"]}

EPOCHS = 4


def check(run):
    for flags, count, last in (
        (("--lr", "0.5", "--target", "1"), 512, 3),
        # In the first epoch the mean of the batches' means is below this, and so is the
        # loss of the last batch: neither is the mean over all images.
        (("--lr", "0.5", "--target", "2"), 453, 2),
        (("--lr", "0.5", "--target", "0.01"), 512, EPOCHS),  # which it never reaches
        ((), 512, EPOCHS),
    ):
        record = run(*flags, train=count, epochs=EPOCHS)
        ended(record)
        steps_of_epoch = -(-count // 64)  # rounded up
        for rank in 0, 1:
            epochs = len(record.of("step", rank)) / steps_of_epoch
            if epochs != last:
                many = "epoch" if epochs == 1 else "epochs"
                raise Wrong(
                    f"Rank {rank} trains for {epochs:g} {many}, expected {last}."
                )
        expected = run.solution(*flags, train=count, epochs=EPOCHS)
        same_curve(record, expected, "the solution")
        same_weights(record, expected, "the solution")
