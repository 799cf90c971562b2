"""Measure how fast training is on this machine: `make bench`.

One thread per process; the table shows medians and their spread. Writes every sample to
runs/bench.json, or to OUT. GPUS=0,1 or cpu says on what; QUICK=1 makes few and short
rounds, to try it out.
"""

import json
import os
import platform
import tempfile
from pathlib import Path

import torch

from tools.bench import runs, tables
from tools.run import gpus
from tools.run.data import shown
from tools.run.stages import ROOT, make_folder, refuse

BATCHES = {  # width of the hidden layer -> images per step of all processes
    128: [64, 256, 1024, 4096],
    512: [256, 1024],
    2048: [64, 256, 1024, 4096],
    4096: [1024],
}
QUICK_BATCHES = {128: [64, 256], 512: [256, 1024]}
PROGRAM = ROOT / "tools/bench/benchmark_rank.py"


def chosen_gpus():
    """Return (a text for CUDA_VISIBLE_DEVICES, names of the GPUs that it makes)."""
    everything = ",".join(str(number) for number in range(gpus.count_gpus()))
    text = os.environ.get("GPUS") or everything or "cpu"
    visible = ",".join(gpus.choose_gpus(text))
    numbers = text.split(",") if visible else []
    return visible, [torch.cuda.get_device_name(int(number)) for number in numbers]


def about(names):
    """Return what a benchmark says of this machine, given the names of its GPUs."""
    return {
        "processor": platform.processor() or platform.machine(),
        "cpus": gpus.count_cpus(),
        "gpus": names,
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def measure(counts, batches, rounds, visible=""):
    """Return the cases of all counts of processes; `batches` is {hidden: sizes}.

    Each count is started twice, in turns: a busy moment of the machine does not hit one
    of them alone. `visible` is a text for CUDA_VISIBLE_DEVICES.
    """
    found = []
    for _ in range(2):
        for processes in counts:
            print(f"steps on {processes} processes ...", flush=True)
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder) / "samples.json"
                words = [PROGRAM, json.dumps(batches), rounds, file]
                runs.run(f"{processes} processes", words, processes, 1800, gpus=visible)
                found += json.loads(file.read_text())
    return found


def main():
    """Measure this machine, and print and save what was measured."""
    out = make_folder()
    if os.environ.get("NPROC"):
        refuse("make bench measures 1, 2, 4 and more processes: leave NPROC out")
    visible, names = chosen_gpus()
    machine = about(names)
    most = len(names) or machine["cpus"]
    counts = [2**exponent for exponent in range(most.bit_length())]
    batches, rounds = (QUICK_BATCHES, 1) if os.environ.get("QUICK") else (BATCHES, 4)
    result = {"machine": machine, "scaling": measure(counts, batches, rounds, visible)}
    (out / "bench.json").write_text(json.dumps(result, indent=1))
    print(f"\n{tables.measured_on(machine)}\n\n{tables.aligned(tables.steps(result))}")
    print(f"\nwritten: {shown(out / 'bench.json')}")
