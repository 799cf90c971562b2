from tools.lab.checks import OTHER, TRAIN, equal_weights, same_curve, shared_out


def check(run):
    for setting in {}, OTHER:
        seen = run(**setting)
        equal_weights(seen)
        shared_out(seen, setting.get("train", TRAIN))
        same_curve(seen, run.solution(**setting), "stage 1")
