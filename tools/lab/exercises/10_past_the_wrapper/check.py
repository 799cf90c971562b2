from tools.lab.checks import OTHER, TRAIN, equal_weights, partitioned, same_curve


def check(run):
    for setting in {}, OTHER:
        record = run(**setting)
        equal_weights(record)
        partitioned(record, setting.get("train", TRAIN))
        same_curve(record, run.solution(**setting), "stage 1")
