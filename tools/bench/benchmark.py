"""Measure how fast the stages are on this machine, and draw it: `make bench`.

Candidates are measured one after the other, round after round, with one thread a
process; tables show medians and their spread. Writes runs/bench.json with every sample,
or to OUT. GPUS=0,1 or cpu says on what; PEERS=1 measures Lightning and Accelerate too,
in an environment of their own; QUICK=1 makes few and short rounds, to try it out.
"""

import csv
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from multiprocessing import get_context
from pathlib import Path

import psutil
import torch
import torchvision

from tools.bench import figures, loops, tables
from tools.bench.loops import in_rounds
from tools.run import data, launch, ranks
from tools.run.sample import write_part
from tools.run.stages import ROOT, STAGES, refuse

PEERS = ROOT / "runs" / "peers"
REQUIREMENTS = ROOT / "requirements" / "peers.txt"
CASES = [  # hidden, batch of all processes
    tables.TUTORIAL, (128, 256), (128, 1024), (128, 4096),
    (512, 256), (512, 1024),
    (2048, 64), (2048, 256), (2048, 1024), (2048, 4096),
    (4096, 1024),
]  # fmt: skip
QUICK_CASES = [tables.TUTORIAL, (128, 256), (512, 256), (512, 1024)]
QUICK_IMAGES = 4000
WIDE = "--hidden 2048 --batch-size 1024"  # a GPU has work then


def take_gpus():
    """Have this process and those that it starts see the GPUs of GPUS= alone, as launch.

    From then on GPUS counts these from 0. Another process asks CUDA which there are:
    after the first question CUDA does not look at CUDA_VISIBLE_DEVICES again.
    """
    if text := os.environ.get("GPUS"):
        given = {"GPUS": text, "DATA": str(data.SAMPLE)}
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as other:
            environment, _ = other.submit(launch.plan, "03_dp", given).result()
        os.environ.update(environment)
        if text != "cpu":
            os.environ["GPUS"] = ",".join(map(str, range(len(text.split(",")))))


def machine():
    """Return what the measurements depend on."""
    processor = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        text = Path("/proc/cpuinfo").read_text()
        processor = text.partition("model name\t: ")[2].partition("\n")[0] or processor
    gpus = launch.count_gpus()
    return {
        "processor": processor,
        "cores": psutil.cpu_count(logical=False) or os.cpu_count(),
        "cpus": os.cpu_count(),
        "gpus": [torch.cuda.get_device_name(gpu) for gpu in range(gpus)],
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torchvision": torchvision.__version__,
        "load before": round(psutil.getloadavg()[0], 2),
    }


def write_synthetic(root):
    """Write a MNIST root of random images, as many as the real one has; return it."""
    generator = torch.Generator().manual_seed(0)
    for part, count in ("train", 60_000), ("t10k", 10_000):
        images, labels = (
            torch.randint(most, size, generator=generator, dtype=torch.uint8)
            for most, size in ((256, (count, 784)), (10, (count,)))
        )
        write_part(root, part, images.numpy().tobytes(), labels.numpy().tobytes())
    return root


def process_seconds(words, **added):
    """Return the seconds that a command takes; refuses where it fails."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **added}
    start = time.perf_counter()
    done = subprocess.run(
        words, cwd=ROOT, env=environment, capture_output=True, text=True
    )
    if done.returncode:
        refuse(f"{' '.join(map(str, words))} failed:\n{done.stderr[-2000:]}")
    return time.perf_counter() - start


def peers_python():
    """Return the Python that has Lightning and Accelerate.

    Its environment adds requirements/peers.txt to this one, and is made anew when that
    has changed.
    """
    python, installed = PEERS / "bin" / "python", PEERS / "installed.txt"
    wanted = REQUIREMENTS.read_text()
    if installed.exists() and installed.read_text() == wanted:
        return python
    print(f"installing {data.shown(REQUIREMENTS)} ...", flush=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", PEERS], check=True)
    (site,) = PEERS.glob("lib/python*/site-packages")
    # What this environment has, torch above all, is not installed once more.
    (site / "this.pth").write_text(f"{Path(torch.__file__).parent.parent}\n")
    words = [python, "-m", "pip", "install", "-q", "-r", REQUIREMENTS]
    if subprocess.run(words).returncode:
        refuse("pip could not install lightning and accelerate: without PEERS=1, then")
    installed.write_text(wanted)
    return python


def peers(root, rounds):
    """Return {name: seconds of a process} of three epochs of stage 1 and its peers."""
    python = peers_python()
    with tempfile.TemporaryDirectory() as out:
        stage_1 = [sys.executable, "01_cpu/mnist.py", "--data", root, "--out", out]
        commands = {"stage 1": stage_1}
        for suffix, flags in ("", []), (", the plain loader", ["usual"]):
            for name in "Lightning", "Accelerate":
                words = [python, "-m", "tools.bench.peers", name.lower(), root, *flags]
                commands[name + suffix] = words
        return in_rounds(
            {n: lambda w=w: process_seconds(w) for n, w in commands.items()}, rounds
        )


def stages(root, epochs, flags=""):
    """Return {stage: images a second} of the epochs of every stage but its first."""
    samples, count = {}, data.check(root)[0]
    for stage in STAGES:
        with tempfile.TemporaryDirectory() as out:
            given = {"DATA": str(root), "OUT": out, "EPOCHS": str(epochs),
                     "ARGS": flags, "GPUS": os.environ.get("GPUS", "")}  # fmt: skip
            environment, words = launch.plan(stage, given)
            process_seconds(words, **environment)
            with open(Path(out) / "metrics.csv") as file:
                seconds = [float(row["seconds"]) for row in csv.DictReader(file)]
        samples[stage] = [count / one for one in seconds[1:]]
    return samples


def process_counts():
    """Return the numbers of processes to measure: 1, 2, 4 … up to GPUs or CPUs."""
    most = launch.count_gpus() or os.cpu_count()
    return [2**exponent for exponent in range(most.bit_length())]


def scaling(cases, rounds):
    """Return what tools/bench/benchmark_rank.py measures: a dict for each case.

    Its keys: processes, hidden, batch, samples ({name: seconds a step}).
    """
    script = ROOT / "tools/bench/benchmark_rank.py"

    def run(processes):
        print(f"  {processes} of {process_counts()[-1]} processes", flush=True)
        words = [script, json.dumps(cases), -(-rounds // 2)]  # half of them, see below
        result = ranks.run(words, processes, timeout=1800, gpus=True)
        if result.returncode:
            refuse(f"{processes} processes failed:\n{result.stderr[-2000:]}")
        return json.loads(result.stdout)

    found = []
    runs = {n: lambda n=n: run(n) for n in process_counts()}
    for first, second in in_rounds(runs, 2).values():
        for case, again in zip(first, second, strict=True):
            for name, samples in case["samples"].items():
                samples += again["samples"][name]
        found += first
    return found


def measure(quick, with_peers):
    """Return every measurement of this machine, as runs/bench.json has them."""
    rounds, gpus = 2 if quick else 7, launch.count_gpus()
    result = {"machine": machine()}
    load = result["machine"]["load before"]
    if load > 0.5:
        print(f"this machine is busy (load {load}): the spread will be large")
    with tempfile.TemporaryDirectory() as folder:
        if data.FULL.exists():
            root = data.FULL
        else:
            root = data.SAMPLE if quick else write_synthetic(Path(folder) / "mnist")
        images = QUICK_IMAGES if quick else data.check(root)[0]
        result["images"] = images
        print("an epoch of stage 1 and of other loops ...", flush=True)
        result["epochs"] = loops.epochs(root, images, rounds)
        if gpus:
            print("an epoch of stage 2 and of other loops, on a GPU ...", flush=True)
            result["gpu"] = [
                {"hidden": hidden, "batch": batch}
                | loops.epochs(root, images, rounds, "cuda", hidden, batch)
                for hidden, batch in product((128, 2048), (64, 1024))
            ]
        if with_peers:
            print("Lightning and Accelerate ...", flush=True)
            result["peers"] = peers(root, 1 + rounds // 2)
            pinned = REQUIREMENTS.read_text().splitlines()
            versions = (line.split("==") for line in pinned if "==" in line)
            result["machine"] |= dict(versions)
        print("the stages ...", flush=True)
        given = data.SAMPLE if quick else root, 3 if quick else 5
        result["stages"] = stages(*given)
        if gpus:
            result["wide"] = stages(*given, WIDE)
    print("steps on 1, 2, 4 … processes ...", flush=True)
    result["scaling"] = scaling(QUICK_CASES if quick else CASES, rounds)
    return result


def main():
    os.chdir(ROOT)
    out = Path(os.environ.get("OUT") or "runs")
    take_gpus()
    out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    result = measure(bool(os.environ.get("QUICK")), bool(os.environ.get("PEERS")))
    part = out / ".bench.json"
    part.write_text(json.dumps(result, indent=1))
    part.replace(out / "bench.json")
    print(f"\n{tables.report(result)}")
    paths = [out / "bench.json", *figures.draw_benchmark(result, out)]
    print(f"\nwritten: {', '.join(str(data.shown(path)) for path in paths)}")


if __name__ == "__main__":
    main()
