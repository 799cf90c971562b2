from tools.lab.checks import (
    OTHER,
    TRAIN,
    Wrong,
    ended,
    equal_weights,
    same_curve,
    same_weights,
    shared_out,
)
from tools.lab.fake_cuda import machines

FILES = ["metrics.csv", "model.pth"]


def check(run):
    for setting, where in (
        ({}, ""),
        ({"processes": 1}, " on one process"),
        ({**OTHER, "fake": machines}, " on three machines, one rank each"),
    ):
        seen = run(**setting)
        for name, ranks in seen.writers().items():
            if len(ranks) > 1:
                *others, last = map(str, ranks)
                ranks = f"{', '.join(others)} and {last}"
                raise Wrong(f"{name} was written by ranks {ranks}{where}.")
        ended(seen)
        missing = [name for name in FILES if name not in seen.writers()]
        if missing:
            raise Wrong(f"Nobody wrote {', '.join(missing)}{where}.")
        shared_out(seen, setting.get("train", TRAIN))
        equal_weights(seen)
        if not where:
            same_curve(seen, run.solution(), "stage 1")
            same_weights(seen, run.solution(), "stage 1")
