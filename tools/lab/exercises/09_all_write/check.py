from tools.lab.checks import (
    OTHER,
    TRAIN,
    Wrong,
    ended,
    equal_weights,
    same_curve,
    same_weights,
)
from tools.lab.fake_cuda import machines
from tools.lab.image_checks import partitioned

FILES = ["metrics.csv", "model.pth"]


def check(run):
    for setting, where in (
        ({}, ""),
        ({"processes": 1}, " on one process"),
        ({**OTHER, "fake": machines}, " on three machines, one rank each"),
    ):
        record = run(**setting)
        for name, ranks in record.writers().items():
            if len(ranks) > 1:
                *others, last = map(str, ranks)
                ranks = f"{', '.join(others)} and {last}"
                raise Wrong(f"{name} was written by ranks {ranks}{where}.")
        ended(record)
        missing = [name for name in FILES if name not in record.writers()]
        if missing:
            raise Wrong(f"Nobody wrote {', '.join(missing)}{where}.")
        partitioned(record, setting.get("train", TRAIN))
        equal_weights(record)
        if not where:
            same_curve(record, run.solution(), "stage 1")
            same_weights(record, run.solution(), "stage 1")
