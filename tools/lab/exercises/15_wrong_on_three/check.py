TRY = {"processes": 3, "batch": 36, "flags": ("--lr", "0.5")}

# The last batch of an epoch has three images for two ranks, or five for four.
SETTINGS = (
    {"train": 451, "processes": 2},
    {"train": 485, "processes": 4, "batch": 48},
)


def check(run):
    for setting in SETTINGS:
        record = run(**setting)
        record.expect_data_parallel()
        record.expect_curve(run.solution(**setting), "stage 1")
