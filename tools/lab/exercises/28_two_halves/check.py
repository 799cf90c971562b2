from tools.lab.checks import Wrong

TRY = {"fake": "two_gpus"}


def check(run):
    setting = {"batch": 100, "fake": "two_gpus"}  # leaves an incomplete batch
    record = run(**setting)
    record.expect_all_trained()
    devices = record.devices()
    if devices != ["cuda:0", "cuda:1"]:
        raise Wrong(
            f"All layers trained on {' and '.join(devices)}: expected one on each GPU."
        )
    record.expect_curve(run.solution(**setting), "the solution")
