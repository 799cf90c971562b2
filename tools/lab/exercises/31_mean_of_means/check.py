from tools.lab.checks import ended, equal_weights, same_curve, wrapped
from tools.lab.image_checks import partitioned

TRY = {"processes": 3, "batch": 36, "flags": ["--lr", "0.5"]}

# The last batch of an epoch has three images for two ranks, or five for four.
SETTINGS = (
    {"train": 451, "processes": 2},
    {"train": 485, "processes": 4, "batch": 48},
)


def check(run):
    for setting in SETTINGS:
        record = run(**setting)
        ended(record)
        wrapped(record)
        partitioned(record, setting["train"])
        equal_weights(record)
        same_curve(record, run.solution(**setting), "stage 1")
