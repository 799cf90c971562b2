from tools.lab.checks import Wrong, same_curve
from tools.lab.image_checks import evaluation_partitioned

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
        evaluation_partitioned(record, test)
        for *_, total in record.rows:
            if total != test:
                raise Wrong(
                    f"On {processes} processes the script says that it counted {total} "
                    f"test images; there are {test}."
                )
        same_curve(record, run.solution(**setting), "stage 5")
