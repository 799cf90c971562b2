from itertools import pairwise

from tools.lab.comparison import expect_curve
from tools.lab.record import Wrong


def rate_fits(record, runs):
    """The learning rate is in proportion to the images that the ranks take a step."""
    setting = record.setting
    ranks = setting.processes
    batch = setting.batch
    step = sum(len(event["rows"]) for event in next(record.training_passes()))
    if step not in (batch, ranks * batch):
        raise Wrong(
            f"The {ranks} ranks together take {step} images a step. With "
            f"--batch-size {batch}, expected {batch}, or {batch} on each rank."
        )
    *_, rate = (rate for flag, rate in pairwise(setting.flags) if flag == "--lr")
    fits = f"{float(rate) * step / batch:g}"
    fitting = {"flags": [*setting.flags, "--lr", fits], "batch": step}
    expected = runs.solution(**vars(setting) | fitting)
    what = f"a run with {step} images a step and a learning rate of {fits}"
    expect_curve(record, expected, what)
