TRY = {"processes": 3, "batch": 63}

RUNS = [  # ranks, test images: one too few for equal shares, two too few, just enough
    (2, 101),
    (4, 10),
    (2, 100),
]


def check(run):
    for processes, test in RUNS:
        setting = {"train": 128, "epochs": 1, "processes": processes, "test": test}
        record = run(**setting)
        record.expect_evaluation_partition()
        record.expect_curve(run.solution(**setting), "stage 5")
