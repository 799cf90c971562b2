from tools.lab.checks import Wrong, ended, same_curve, same_weights

TRY = {"flags": ["--epochs", "6", "--target", "0.5"]}

EPOCHS = 4


def check(run):
    for flags, count, last in (
        (("--lr", "0.5", "--target", "1"), 512, 3),
        # The loss of the last batch is below this after the first epoch.
        (("--lr", "0.5", "--target", "1.6"), 453, 2),
        ((), 512, EPOCHS),
    ):
        record = run(*flags, train=count, epochs=EPOCHS)
        ended(record)
        steps_of_epoch = -(-count // 64)  # rounded up
        for rank in 0, 1:
            epochs = len(record.of("step", rank)) / steps_of_epoch
            if epochs != last:
                raise Wrong(
                    f"Rank {rank} trains for {epochs:g} epochs, expected {last}."
                )
        expected = run.solution(*flags, train=count, epochs=EPOCHS)
        same_curve(record, expected, "the solution")
        same_weights(record, expected, "the solution")
