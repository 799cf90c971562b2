"""Measure how fast training is on this machine, and draw it: `make bench`.

One thread per process; tables show medians and their spread. Writes runs/bench.json
with every sample, and runs/bench_speedup.png, or to OUT. GPUS=0,1 or cpu says on what;
QUICK=1 makes few and short rounds, to try it out.
"""

import json
import os
import platform
import tempfile
from pathlib import Path
from statistics import fmean

import torch

from tools.bench import figures, runs, tables
from tools.run import gpus, ranks
from tools.run.data import shown
from tools.run.stages import ROOT, refuse

BATCHES = {  # width of the hidden layer -> images per step of all processes
    128: [64, 256, 1024, 4096],
    512: [256, 1024],
    2048: [64, 256, 1024, 4096],
    4096: [1024],
}
QUICK_BATCHES = {128: [64, 256], 512: [256, 1024]}
FACTS = "images", "device", "averaged"  # of what a rank has measured


def chosen_gpus():
    """Return (a text for CUDA_VISIBLE_DEVICES or None for all, names of those GPUs)."""
    text = os.environ.get("GPUS")
    chosen = gpus.choose_gpus(text) if text else None
    if chosen is None:
        numbers = range(gpus.count_gpus())
    else:
        numbers = [int(number) for number in text.split(",")] if chosen else []
    names = [torch.cuda.get_device_name(number) for number in numbers]
    return None if chosen is None else ",".join(chosen), names


def machine(names):
    """Return what the measurements depend on; `names` are those of the GPUs."""
    processor = platform.processor() or platform.machine()
    about = Path("/proc/cpuinfo")
    if about.exists():
        model = about.read_text().partition("model name\t: ")[2]
        processor = model.partition("\n")[0] or processor
    return {
        "processor": processor,
        "cpus": gpus.count_cpus(),
        "gpus": names,
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def merged(case, records):
    """Return a case with the mean of its ranks' samples, and with the ranks' facts."""
    samples = {}
    for name in records[0]["samples"]:
        rounds = zip(*[record["samples"][name] for record in records], strict=True)
        samples[name] = [fmean(seconds) for seconds in rounds]
    facts = [{name: record[name] for name in FACTS} for record in records]
    return {**case, "ranks": facts, "samples": samples}


def start(processes, batches, rounds, visible):
    """Measure with so many processes; return what `merged` does, of each case."""
    print(f"steps on {processes} processes ...", flush=True)
    cases = [(hidden, batch) for hidden in batches for batch in batches[hidden]]
    with tempfile.TemporaryDirectory() as folder:
        program = ROOT / "tools/bench/benchmark_rank.py"
        words = [program, json.dumps(cases), rounds, folder]
        result = ranks.run(words, processes, timeout=1800, gpus=visible)
        if result.returncode:
            refuse(f"{processes} processes failed:\n{result.stderr[-2000:]}")
        files = [Path(folder) / f"{rank}.json" for rank in range(processes)]
        records = [json.loads(file.read_text()) for file in files]
    found = []
    for number, (hidden, batch) in enumerate(cases):
        case = {"processes": processes, "hidden": hidden, "batch": batch}
        found.append(merged(case, [of_rank[number] for of_rank in records]))
    return found


def measure(counts, batches, rounds, visible=""):
    """Return the cases of all counts of processes; `batches` is {hidden: sizes}.

    Each count is started twice, in turns: a busy moment of the machine does not hit one
    of them alone. `visible` is a text for CUDA_VISIBLE_DEVICES, or None for all.
    """
    found = []
    again = []
    for cases in found, again:
        for processes in counts:
            cases.extend(start(processes, batches, rounds, visible))
    for case, other in zip(found, again, strict=True):
        for name, samples in case["samples"].items():
            samples.extend(other["samples"][name])
    return found


def main():
    os.chdir(ROOT)
    out = runs.make_folder()
    if os.environ.get("NPROC"):
        refuse("make bench measures 1, 2, 4 and more processes: leave NPROC out")
    visible, names = chosen_gpus()
    about = machine(names)
    most = len(about["gpus"]) or about["cpus"]
    if most == 1:
        print("one process only: on one GPU or CPU, several would wait for each other")
    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"this machine is busy (load {load:.2f}): the spread will be large")
    counts = [2**exponent for exponent in range(most.bit_length())]
    batches, rounds = (QUICK_BATCHES, 1) if os.environ.get("QUICK") else (BATCHES, 4)
    steps = measure(counts, batches, rounds, visible)
    result = {"machine": about, "scaling": steps}
    (out / "bench.json").write_text(json.dumps(result, indent=1))
    print(f"\n{tables.measured_on(about)}\n\n{tables.aligned(tables.steps(result))}")
    written = [out / "bench.json"]
    if most > 1:
        written.append(out / "bench_speedup.png")
        title = f"{counts[-1]} processes: median and range; below 1 they are slower"
        figure = figures.draw_speedups(figures.speedups(result), title)
        figure.savefig(written[-1], dpi=120)
    print(f"\nwritten: {', '.join(str(shown(path)) for path in written)}")


if __name__ == "__main__":
    main()
