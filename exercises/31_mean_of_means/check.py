from tools.lab.checks import ended, equal_weights, same_curve, shared_out, wrapped

# The last batch of an epoch has three images for two ranks, or five for four.
SETTINGS = (
    {"train": 451, "processes": 2},
    {"train": 485, "processes": 4, "batch": 48},
)


def check(run):
    for setting in SETTINGS:
        seen = run(**setting)
        ended(seen)
        wrapped(seen)
        shared_out(seen, setting["train"])
        equal_weights(seen)
        same_curve(seen, run.solution(**setting), "stage 1")
