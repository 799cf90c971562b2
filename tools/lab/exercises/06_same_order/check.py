from tools.lab.checks import THREE_RANKS


def check(run):
    for seed, setting in ("0", {}), ("1", {**THREE_RANKS, "epochs": 3}):
        record = run("--seed", seed, **setting)
        record.expect_partition()
        record.expect_new_order()
        record.expect_equal_weights()
        record.expect_curve(run.solution("--seed", seed, **setting), "stage 1")
