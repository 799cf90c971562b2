"""The memory of each rank of each stage: `make memory ARGS="--hidden 2048"`.

Runs every stage for one step, in which hooks measure: bytes of parameters and of
gradients, then of the state that SGD with momentum and that Adam keep for them; and of
the largest layer while it computes. The stages that only add checkpoints are left out.
DDP's copy of the gradients in its buckets is not counted. GPUS, NPROC and ARGS are as
tools/bench/runs.py says.
"""

import json
import tempfile
from pathlib import Path

from tools.bench import runs
from tools.bench.memory_rank import measure_first_step
from tools.bench.tables import aligned
from tools.run.stages import BY_NAME, RESUMES

HEADINGS = ["stage", "rank", "parameters", "gradients", "momentum", "Adam", "layer"]


def measure(stage, flags=()):
    """Return the memory of each rank of a stage in a step: a list of {kind: bytes}."""
    with tempfile.TemporaryDirectory() as folder:
        prepare = measure_first_step, Path(folder)
        number = runs.run_stage(stage, (64, 10), flags, prepare)
        files = [Path(folder) / f"{rank}.json" for rank in range(number)]
        return [json.loads(file.read_text()) for file in files]


def measure_all():
    """Return {stage: what `measure` returns}."""
    return {stage: measure(stage) for stage in BY_NAME if stage not in RESUMES}


def rows(found):
    """Return the rows of a table of what `measure_all` returns, headings first.

    The share is of all weights: the parameters that stage 1 has.
    """
    lines = [[*HEADINGS, "share"]]
    for stage, of_ranks in found.items():
        for rank, sizes in enumerate(of_ranks):
            numbers = [f"{sizes[kind]:,}" for kind in HEADINGS[2:]]
            share = sizes["parameters"] / found["01_cpu"][0]["parameters"]
            lines.append([stage, rank, *numbers, f"{share:.1%}"])
    return lines


def main():
    runs.take_gpus()
    print("Bytes on each rank after a step\n")
    print(aligned(rows(measure_all())))
    print(
        "\nA rank needs 2 times its part of the model, 3 times with momentum, and 4 "
        "times with Adam, which also counts its steps."
    )


if __name__ == "__main__":
    main()
