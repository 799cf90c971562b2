import math

from tools.lab.comparison import expect_curve, expect_weights
from tools.lab.record import Wrong
from tools.lab.setting import THREE_RANKS

EPOCHS = 3


def check(run):
    for setting in {"train": 128}, {**THREE_RANKS, "train": 99}:
        record = run(**setting, epochs=EPOCHS, fake="slow_disk")
        expected = run.solution(**setting, epochs=EPOCHS)
        expect_curve(record, expected, "a correct script")
        expect_weights(record, expected, "a correct script")
        begun = [starts(record, rank) for rank in record.ranks]
        saves = [one for one in record.of("file") if one["path"].endswith(".pth")]
        for epoch in range(1, EPOCHS):
            first, last = begun[0][epoch - 1 : epoch + 1]
            times = [save["time"] for save in saves if first < save["time"] < last]
            saved = max(times, default=math.inf)
            for rank, starting in enumerate(begun):
                if starting[epoch] < saved:
                    raise Wrong(
                        f"Rank {rank} begins epoch {epoch + 1} before model.pth of "
                        f"epoch {epoch} is saved, which takes 0.05 s here."
                    )


def starts(record, rank):
    """Return the time of a rank's first training batch in each epoch, in seconds."""
    times = [each[rank]["time"] for each in record.training_passes()]
    return times[:: len(times) // EPOCHS]
