"""Measure training speed on this machine: `make bench`.

Uses one thread per process and prints medians and their spread. Writes every sample to
bench.json in runs/ or OUT. GPUS=0,1 or GPUS=cpu selects devices; QUICK=1 runs fewer and
shorter rounds.
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

BATCHES = {  # width of the hidden layer -> images per step over all processes
    128: [64, 256, 1024, 4096],
    2048: [64, 256, 1024, 4096],
    4096: [1024],
}
QUICK_BATCHES = {128: [64, 256], 2048: [256]}
PROGRAM = ROOT / "tools/bench/benchmark_rank.py"


def chosen_gpus():
    """Return (value of CUDA_VISIBLE_DEVICES, names of these GPUs)."""
    everything = ",".join(str(number) for number in range(gpus.count_gpus()))
    text = os.environ.get("GPUS") or everything or "cpu"
    visible = ",".join(gpus.choose_gpus(text))
    numbers = text.split(",") if visible else []
    return visible, [torch.cuda.get_device_name(int(number)) for number in numbers]


def about(names):
    """Return a description of this machine, given the names of its GPUs."""
    return {
        "processor": platform.processor() or platform.machine(),
        "cpus": gpus.count_cpus(),
        "gpus": names,
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def measure(counts, batches, rounds, visible=""):
    """Return the cases for all numbers of processes; `batches` is {hidden: sizes}.

    Measures all counts in turn, twice, so that a busy moment does not affect only one
    of them. `visible` is the value of CUDA_VISIBLE_DEVICES.
    """
    found = []
    for _ in range(2):
        for processes in counts:
            print(f"timing steps on {processes} processes ...", flush=True)
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder) / "samples.json"
                words = [PROGRAM, json.dumps(batches), rounds, file]
                runs.run(f"{processes} processes", words, processes, 1800, gpus=visible)
                found += json.loads(file.read_text())
    return found


def main():
    """Measure this machine; print and save the results."""
    out = make_folder()
    if os.environ.get("NPROC"):
        refuse("make bench measures 1, 2, 4 and more processes. Remove NPROC")
    visible, names = chosen_gpus()
    machine = about(names)
    most = len(names) or machine["cpus"]
    counts = [2**exponent for exponent in range(most.bit_length())]
    batches, rounds = (QUICK_BATCHES, 1) if os.environ.get("QUICK") else (BATCHES, 4)
    result = {"machine": machine, "scaling": measure(counts, batches, rounds, visible)}
    (out / "bench.json").write_text(json.dumps(result, indent=1))
    print(f"\n{tables.measured_on(machine)}\n\n{tables.aligned(tables.steps(result))}")
    print(f"\nwrote {shown(out / 'bench.json')}")
