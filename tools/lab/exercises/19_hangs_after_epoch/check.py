from tools.lab.checks import THREE_RANKS, Wrong

EPOCHS = 3


def check(run):
    for setting in {"train": 128}, {**THREE_RANKS, "train": 99}:
        record = run(**setting, epochs=EPOCHS, fake="slow_disk")
        record.expect_curve(run.solution(**setting, epochs=EPOCHS), "stage 1")
        record.trained()  # as many batches in each epoch
        begun = [starts(record, rank) for rank in record.ranks]
        writes = []
        for event in record.of("write"):
            if event["path"].endswith("model.pth"):
                writes.append(event["time"])
        for epoch in range(1, EPOCHS):
            first, last = begun[0][epoch - 1 : epoch + 1]
            saved = max((time for time in writes if first < time < last), default=None)
            if saved is None:
                raise Wrong(f"Rank 0 does not save epoch {epoch} before the next one.")
            for rank, times in enumerate(begun):
                if times[epoch] < saved:
                    raise Wrong(
                        f"Rank {rank} begins epoch {epoch + 1} before rank 0 has saved "
                        f"epoch {epoch} (here that takes 0.05 s): it does not wait."
                    )


def starts(record, rank):
    """Return when a rank begins each epoch, in seconds: at its first training batch."""
    times = [event["time"] for event in record.training_passes(rank)]
    return times[:: len(times) // EPOCHS]
