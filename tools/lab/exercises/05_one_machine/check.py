from tools.lab.checks import Wrong, listed

TRY = {"processes": 4, "fake": "two_gpus_each"}

IMAGES = {"train": 480, "batch": 48}  # as many for each of three or four ranks
MACHINES = [  # the name of a fake, ranks, GPUs of a machine
    ("two_gpus_each", 4, 2),
    ("three_gpus", 3, 3),
]


def check(run):
    expected = run.solution(**IMAGES, processes=1)
    for fake, ranks, gpus in MACHINES:
        record = run(**IMAGES, processes=ranks, fake=fake)
        record.expect_one_writer()
        record.expect_curve(expected)
        for first in range(0, ranks, gpus):
            expect_own_gpus(record, range(first, first + gpus))


def expect_own_gpus(record, ranks):
    """Raise Wrong unless each of the ranks of a machine trained on a GPU of its own."""
    used = [record.devices(rank) for rank in ranks]
    if sorted(used) != [[f"cuda:{number}"] for number in range(len(ranks))]:
        told = listed([" and ".join(devices) for devices in used])
        raise Wrong(
            f"On a machine with {len(ranks)} GPUs, ranks {listed(ranks)} train on "
            f"{told}: expected a GPU of its own for each."
        )
