"""The memory of each rank of each stage: `make memory ARGS="--hidden 2048"`.

Runs every stage for one step, in which hooks measure: bytes of parameters and of
gradients, then of the state that SGD with momentum and that Adam keep for them; and of
the largest layer while it computes. The stages that only add checkpoints are left out.
DDP's copy of the gradients in its buckets is not counted.
Writes runs/memory.png, or to OUT. GPUS=0,1 or cpu says on what; stages that cannot have
a GPU for each rank run on the CPU. ARGS are further flags of the scripts.
"""

import json
import os
import shlex
import tempfile
from pathlib import Path

from tools.bench.benchmark import take_gpus
from tools.bench.figures import draw_memory
from tools.bench.memory_rank import KINDS, measure_first_step
from tools.run import gpus, ranks
from tools.run.data import shown
from tools.run.sample import cut
from tools.run.stages import CPU_PROCESSES, EVERY, RESUMES, ROOT, refuse, script

MEASURED = [stage for stage in EVERY.values() if stage not in RESUMES]


def measure(stage, flags):
    """Return the memory of each rank of a stage in a step: a list of {kind: bytes}."""
    number = CPU_PROCESSES.get(stage, 0)
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        words = [script(stage), "--data", cut(folder / "data", 64, 10)]
        words += ["--out", folder, *flags]
        on_gpus = gpus.count_gpus() >= max(number, 1)
        prepare = measure_first_step, folder
        result = ranks.run(words, number, prepare=prepare, gpus=on_gpus)
        files = [folder / f"{rank}.json" for rank in range(number or 1)]
        if result.returncode or not all(file.exists() for file in files):
            refuse(f"{stage} failed:\n{result.stderr[-2000:]}")
        return [json.loads(file.read_text()) for file in files]


def measure_all(flags=()):
    """Measure every stage and print its bytes; return {stage: what `measure` returns}.

    The share is of all weights: the parameters that stage 1 has.
    """
    print(f"Bytes on each rank after a step {' '.join(flags)}\n")
    headings = "".join(f"{kind:>12}" for kind in KINDS)
    print(f"{'stage':19}{'rank'}{headings}   share")
    found = {}
    for stage in MEASURED:
        found[stage] = measure(stage, flags)
        whole = found["01_cpu"][0]["parameters"]
        for rank, sizes in enumerate(found[stage]):
            numbers = "".join(f"{sizes[kind]:12,}" for kind in KINDS)
            print(f"{stage:19}{rank:4}{numbers}{sizes['parameters'] / whole:8.1%}")
    return found


def main():
    os.chdir(ROOT)
    out = Path(os.environ.get("OUT") or "runs")
    take_gpus()
    found = measure_all(shlex.split(os.environ.get("ARGS", "")))
    print(
        "\nA rank needs 2 times its part of the model, 3 times with momentum, and 4 "
        "times with Adam, which also counts its steps."
    )
    out.mkdir(parents=True, exist_ok=True)
    draw_memory(found, out / "memory.png")
    print(f"wrote {shown(out / 'memory.png')}")


if __name__ == "__main__":
    main()
