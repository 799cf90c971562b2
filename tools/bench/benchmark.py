"""Measure how fast training is on this machine, and draw it: `make bench`.

One thread per process; tables show medians and their spread. Writes runs/bench.json
with every sample, and runs/bench_speedup.png, or to OUT. GPUS=0,1 or cpu says on what;
QUICK=1 makes few and short rounds, to try it out.
"""

import json
import os
import platform
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import torch

from tools.bench import figures, tables
from tools.run import data, gpus, ranks
from tools.run.stages import ROOT, refuse

BATCHES = {  # width of the hidden layer -> images per step of all processes
    128: [64, 256, 1024, 4096],
    512: [256, 1024],
    2048: [64, 256, 1024, 4096],
    4096: [1024],
}
QUICK_BATCHES = {128: [64, 256], 512: [256, 1024]}


def take_gpus():
    """Have this process and those that it starts see the GPUs of GPUS= alone.

    From then on GPUS counts these from 0. Another process asks CUDA which there are:
    after the first question CUDA does not look at CUDA_VISIBLE_DEVICES again.
    """
    text = os.environ.get("GPUS")
    if not text:
        return
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as other:
        chosen = other.submit(gpus.choose_gpus, text).result()
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(chosen)
    os.environ["GPUS"] = ",".join(map(str, range(len(chosen)))) or "cpu"


def machine():
    """Return what the measurements depend on."""
    processor = platform.processor() or platform.machine()
    about = Path("/proc/cpuinfo")
    if about.exists():
        model = about.read_text().partition("model name\t: ")[2]
        processor = model.partition("\n")[0] or processor
    count = gpus.count_gpus()
    return {
        "processor": processor,
        "cpus": os.cpu_count(),
        "gpus": [torch.cuda.get_device_name(gpu) for gpu in range(count)],
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def process_counts():
    """Return the numbers of processes to measure: 1, 2, 4 … up to GPUs or CPUs."""
    most = gpus.count_gpus() or os.cpu_count()
    return [2**exponent for exponent in range(most.bit_length())]


def start(processes, cases, rounds):
    """Return what tools/bench/benchmark_rank.py prints: a dict for each case."""
    print(f"  {processes} of {process_counts()[-1]} processes", flush=True)
    words = [ROOT / "tools/bench/benchmark_rank.py", json.dumps(cases), rounds]
    result = ranks.run(words, processes, timeout=1800, gpus=True)
    if result.returncode:
        refuse(f"{processes} processes failed:\n{result.stderr[-2000:]}")
    return json.loads(result.stdout)


def measure_steps(batches, rounds):
    """Return what `start` does, for all numbers of processes.

    `batches` is {hidden: sizes}. The keys of a case: processes, hidden, batch, samples
    ({name: seconds per step}). Each number of processes is started twice, in turns, for
    so many rounds: a busy moment of the machine does not hit one of them alone.
    """
    cases = [(hidden, batch) for hidden in batches for batch in batches[hidden]]
    found = []
    for processes in process_counts():
        found += start(processes, cases, rounds)
    again = []
    for processes in process_counts():
        again += start(processes, cases, rounds)
    for case, other in zip(found, again, strict=True):
        for name, samples in case["samples"].items():
            samples += other["samples"][name]
    return found


def main():
    os.chdir(ROOT)
    out = Path(os.environ.get("OUT") or "runs")
    take_gpus()
    out.mkdir(parents=True, exist_ok=True)
    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"this machine is busy (load {load:.2f}): the spread will be large")
    print("steps on 1, 2, 4 … processes ...", flush=True)
    quick = bool(os.environ.get("QUICK"))
    steps = measure_steps(QUICK_BATCHES, 1) if quick else measure_steps(BATCHES, 4)
    result = {"machine": machine(), "scaling": steps}
    part = out / ".bench.json"
    part.write_text(json.dumps(result, indent=1))
    part.replace(out / "bench.json")
    print(f"\n{tables.report(result)}")
    paths = [out / "bench.json", *figures.draw_benchmark(result, out)]
    print(f"\nwritten: {', '.join(str(data.shown(path)) for path in paths)}")


if __name__ == "__main__":
    main()
