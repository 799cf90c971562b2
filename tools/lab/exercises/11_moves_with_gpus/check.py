from tools.lab.comparison import expect_curve
from tools.lab.record import Wrong
from tools.lab.setting import THREE_RANKS

TWO_RANKS = {"processes": 2, "batch": 64}


def check(run):
    for setting, rate in (TWO_RANKS, 0.1), (THREE_RANKS, 0.05):
        record = run(flags=["--lr", rate], **setting)
        ranks = setting["processes"]
        batch = setting["batch"]
        step = sum(len(event["rows"]) for event in next(record.training_passes()))
        if step not in (batch, ranks * batch):
            raise Wrong(
                f"The {ranks} ranks together take {step} images a step. With "
                f"--batch-size {batch}, expected {batch}, or {batch} on each rank."
            )
        fits = f"{rate * step / batch:g}"
        fitting = setting | {"flags": ["--lr", fits], "batch": step}
        expected = run.solution(**fitting)
        what = f"a run with {step} images a step and a learning rate of {fits}"
        expect_curve(record, expected, what)
