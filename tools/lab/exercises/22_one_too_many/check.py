from tools.lab.checks import Wrong

TRY = {"processes": 3, "batch": 129}

# Ranks, images, images of a step. Each run tells a mistake that the others do not.
RUNS = [
    (3, 100, 99),  # 34, 33 and 33 images: padded for two or four ranks
    (2, 127, 64),  # 64 and 63: one image more on every rank
    (2, 67, 64),  # 34 and 33: another batch size, so that 65 and 64 are two batches
    (2, 128, 64),  # 64 and 64: one image more on every rank but the first
]


def check(run):
    for processes, train, batch in RUNS:
        record = run(processes=processes, train=train, batch=batch)
        record.expect_data_parallel(twice=batch)
        record.expect_learning()
        for rank in record.ranks:
            batches = len(record.training_passes(rank))
            steps = len(record.of("step", rank))
            if steps < batches:
                raise Wrong(
                    f"Rank {rank} put {batches} batches through the network, and took "
                    f"{steps} steps: all batches have to count."
                )
