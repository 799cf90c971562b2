TRY = {"epochs": 6, "flags": ("--target", "0.5")}

RUNS = [  # flags, images
    (("--lr", "0.5", "--target", "1"), 512),
    # In the first epoch the mean of the batches' means is below this, and so is the
    # loss of the last batch: neither is the mean over all images.
    (("--lr", "0.5", "--target", "2"), 453),
    ((), 128),
]


def check(run):
    for flags, count in RUNS:
        record = run(*flags, train=count, epochs=4)
        expected = run.solution(*flags, train=count, epochs=4)
        record.expect_result(expected, "the solution")
