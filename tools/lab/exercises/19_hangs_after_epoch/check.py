import math

from tools.lab.record import Wrong


def saved_first(record, runs):
    """No rank begins an epoch before the weights of the last one are saved."""
    begun = [starts(record, rank) for rank in record.ranks]
    saves = [one for one in record.of("file") if one["path"].endswith(".pth")]
    for epoch in range(1, record.setting.epochs):
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
    return times[:: len(times) // record.setting.epochs]
