"""What a benchmark holds, as `make bench` writes it to runs/bench.json."""

import json
from statistics import median

from tools.run.stages import ROOT

TUTORIAL = 128, 64  # hidden units and images a batch, as the stages have them


def published():
    """Return the benchmark that the pages show: a copy of a runs/bench.json."""
    return json.loads((ROOT / "tools/bench/measured.json").read_text())


def by_case(result):
    """Return {(hidden, batch): {processes: {name: samples}}}, in seconds a step."""
    found = {}
    for case in result["scaling"]:
        group = found.setdefault((case["hidden"], case["batch"]), {})
        group[case["processes"]] = case["samples"]
    return found


def step_parts(samples):
    """Return a step's computing, waiting and communicating, in seconds (medians)."""
    compute, slowest, step = (
        median(samples[n]) for n in ("compute", "slowest", "step")
    )
    waiting = max(0.0, slowest - compute)
    return compute, waiting, max(0.0, step - compute - waiting)
