from tools.lab.checks import Wrong, curve, same_curve
from tools.lab.image_checks import evaluation_partitioned

TRY = {"processes": 3, "batch": 63}

RUNS = [(2, 3), (4, 2), (2, 100)]  # ranks, test images: two ranks of four have none


def check(run):
    for processes, test in RUNS:
        setting = {"train": 128, "epochs": 1, "processes": processes, "test": test}
        record = run(**setting)
        expected = run.solution(**setting)
        (ours,), (theirs,) = curve(record, 1), expected.rows
        evaluation_partitioned(record, test)
        if ours[1:] != theirs[1:]:
            raise Wrong(
                f"The script counts {ours[1]} of {ours[2]} as correct; the {processes} "
                f"ranks together had {theirs[1]} of {theirs[2]}."
            )
        same_curve(record, expected, "stage 5")
