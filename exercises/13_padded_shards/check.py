from tools.lab.checks import Wrong, same_curve, tests_shared_out

TRY = {"processes": 3, "flags": ["--batch-size", "63"]}

RUNS = [  # ranks, test images: one too few for equal shares, two too few, just enough
    (2, 101),
    (4, 10),
    (2, 100),
]


def check(run):
    for processes, test in RUNS:
        setting = {"train": 128, "epochs": 1, "processes": processes, "test": test}
        seen = run(**setting)
        tests_shared_out(seen, test)
        for *_, total in seen.rows:
            if total != test:
                raise Wrong(
                    f"On {processes} processes the script says that it counted {total} "
                    f"test images; there are {test}."
                )
        same_curve(seen, run.solution(**setting), "stage 5")
