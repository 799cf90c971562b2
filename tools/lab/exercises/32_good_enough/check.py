from tools.lab.checks import Wrong

TRY = {"epochs": 6, "flags": ("--target", "0.5")}

EPOCHS = 4
RUNS = [  # flags, images, epochs
    (("--lr", "0.5", "--target", "1"), 512, 3),
    # In the first epoch the mean of the batches' means is below this, and so is the
    # loss of the last batch: neither is the mean over all images.
    (("--lr", "0.5", "--target", "2"), 453, 2),
    ((), 128, EPOCHS),
]


def check(run):
    for flags, count, last in RUNS:
        record = run(*flags, train=count, epochs=EPOCHS)
        steps_of_epoch = -(-count // 64)  # rounded up
        for rank in record.ranks:
            epochs = len(record.of("step", rank)) / steps_of_epoch
            if epochs != last:
                many = "epoch" if epochs == 1 else "epochs"
                raise Wrong(
                    f"Rank {rank} trains for {epochs:g} {many}, expected {last}."
                )
        expected = run.solution(*flags, train=count, epochs=EPOCHS)
        record.expect_curve(expected, "the solution")
        record.expect_weights(expected, "the solution")
