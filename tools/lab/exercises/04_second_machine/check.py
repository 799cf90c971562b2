from tools.lab.checks import Wrong, same_curve
from tools.lab.fake_cuda import one_gpu_each, three_gpus, two_gpus_each

TRY = {"processes": 4, "fake": "two_gpus_each"}

IMAGES = {"train": 480, "batch": 48}  # as many for each of three or four ranks


def check(run):
    expected = run.solution(**IMAGES, processes=1)
    for fake, ranks, gpus in (
        (two_gpus_each, 4, 2),
        (three_gpus, 3, 3),  # on one machine
        (one_gpu_each, 3, 1),
    ):
        record = run(**IMAGES, processes=ranks, fake=fake)
        same_curve(record, expected, "one process")
        used = [gpu_of(record, rank) for rank in range(ranks)]
        for first in range(0, ranks, gpus):  # the first rank of a machine
            on_a_machine(used, range(first, first + gpus))


def gpu_of(record, rank):
    """Return the GPU that a rank trained on. Raises Wrong if it is not one GPU."""
    devices = sorted({event["device"] for event in record.of("backward", rank)})
    if len(devices) != 1 or devices[0] == "cpu":
        raise Wrong(f"Rank {rank} trained on {' and '.join(devices)}, not on one GPU.")
    return devices[0]


def on_a_machine(used, ranks):
    """Raise Wrong if two ranks of one machine trained on the same GPU."""
    for rank in ranks:
        for other in range(ranks[0], rank):
            if used[rank] == used[other]:
                raise Wrong(
                    f"Ranks {other} and {rank} are on one machine, and both train on "
                    f"{used[rank]}."
                )
