from tools.lab.checks import OTHER, Wrong, same_curve
from tools.lab.fake_cuda import slow_disk
from tools.lab.image_checks import trained

EPOCHS = 3


def starts(record, rank):
    """Return when a rank begins each epoch, in seconds: at its first training batch."""
    passes = [
        event["time"]
        for event in record.of("pass", rank)
        if event["grad"] and any(train for train, _ in event["images"])
    ]
    return passes[:: len(passes) // EPOCHS]


def check(run):
    for setting in {"train": 128}, {**OTHER, "train": 99}:
        record = run(**setting, epochs=EPOCHS, fake=slow_disk)
        same_curve(record, run.solution(**setting, epochs=EPOCHS), "stage 1")
        trained(record, EPOCHS)
        begun = [starts(record, rank) for rank in range(len(record.events))]
        writes = [
            e["time"] for e in record.of("write") if e["path"].endswith("model.pth")
        ]
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
