TRY = {"processes": 3, "batch": 63}

# Ranks, test images. More than 256, which do not fit into a byte; none for two of four.
RUNS = [(2, 3), (3, 999), (4, 2)]


def check(run):
    for processes, test in RUNS:
        setting = {"train": 384, "epochs": 1, "processes": processes, "test": test}
        record = run(batch=48, **setting)
        record.expect_evaluation_partition()
        what = f"the {processes} ranks together"
        record.expect_curve(run.solution(batch=48, **setting), what)
