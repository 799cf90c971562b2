"""Measure how fast the stages are on this machine, and draw it: `make bench`.

Candidates are measured one after the other, round after round, with one thread a
process; tables show medians and their spread. Writes runs/bench.json with every sample.
PEERS=1 measures Lightning and Accelerate too, in an environment of their own; QUICK=1
makes few and short rounds, to try it out.
"""

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import torch
import torchvision
from torch import nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset
from torchvision import datasets, transforms

from tools.bench import figures, tables
from tools.bench.results import TUTORIAL
from tools.run import data, launch, ranks
from tools.run.sample import write_part
from tools.run.stages import ROOT, STAGES, load, refuse

OUT = ROOT / "runs"
PEERS = OUT / "peers"
REQUIREMENTS = ROOT / "requirements" / "peers.txt"
CASES = [  # hidden, batch of all processes
    TUTORIAL, (128, 256), (128, 1024), (128, 4096),
    (512, 256), (512, 1024),
    (2048, 64), (2048, 256), (2048, 1024), (2048, 4096),
    (4096, 1024),
]  # fmt: skip
QUICK_CASES = [TUTORIAL, (128, 256), (512, 256), (512, 1024)]
QUICK_IMAGES = 4000


def machine():
    """Return what the measurements depend on."""
    processor = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        text = Path("/proc/cpuinfo").read_text()
        processor = text.partition("model name\t: ")[2].partition("\n")[0] or processor
    gpus = range(torch.cuda.device_count())
    return {
        "processor": processor,
        "cores": psutil.cpu_count(logical=False) or os.cpu_count(),
        "cpus": os.cpu_count(),
        "gpus": [torch.cuda.get_device_name(gpu) for gpu in gpus],
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torchvision": torchvision.__version__,
        "load before": round(psutil.getloadavg()[0], 2),
    }


def write_synthetic(root):
    """Write a MNIST root of random images, as many as the real one has; return it."""
    generator = torch.Generator().manual_seed(0)

    def random(most, *shape):
        values = torch.randint(most, shape, generator=generator, dtype=torch.uint8)
        return values.numpy().tobytes()

    for part, count in ("train", 60_000), ("t10k", 10_000):
        write_part(root, part, random(256, count, 784), random(10, count))
    return root


def in_rounds(candidates, rounds):
    """Return {name: what its calls returned}; each round calls every candidate once.

    So what slows the machine down for a while does not hit one candidate alone.
    """
    results = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, candidate in candidates.items():
            results[name].append(candidate())
    return results


def epochs(root, images, rounds):
    """Return {name: seconds an epoch of `images`} of stage 1 and of other loops."""
    stage = load("01_cpu")
    train = TensorDataset(*data.tensors(root)[:images])

    def model_and_optimizer():
        torch.manual_seed(0)
        model = stage.Net(128)
        return model, torch.optim.SGD(model.parameters(), lr=0.1)

    def stage_1():
        sampler = RandomSampler(train, generator=torch.Generator())
        batches = BatchSampler(sampler, 64, drop_last=False)
        loader = DataLoader(train, batch_size=None, sampler=batches)
        model, optimizer = model_and_optimizer()
        stage.train_epoch(model, loader, optimizer)

    def usual_loop():  # as most tutorials have it
        dataset = datasets.MNIST(root, transform=transforms.ToTensor())
        dataset.data, dataset.targets = train.tensors
        loader = DataLoader(dataset, 64, shuffle=True, num_workers=2)
        model, optimizer = model_and_optimizer()
        stage.train_epoch(model.layers, loader, optimizer)  # ToTensor has divided

    def default_threads():
        torch.set_num_threads(os.cpu_count())
        usual_loop()
        torch.set_num_threads(1)

    def bare():  # the limit: no loader, nothing but the steps
        model, optimizer = model_and_optimizer()
        for indices in torch.randperm(len(train)).split(64):
            images, labels = train[indices]
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    def timed(function):
        start = time.perf_counter()
        function()
        return time.perf_counter() - start

    loops = {"stage 1": stage_1, "plain": usual_loop, "typed": default_threads,
             "bare": bare}  # fmt: skip
    bare()  # warm-up
    return in_rounds({n: lambda f=f: timed(f) for n, f in loops.items()}, rounds)


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
    print(
        f"installing {data.shown(REQUIREMENTS)} into {data.shown(PEERS)} ...",
        flush=True,
    )
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


def stages(root, epochs):
    """Return {stage: images a second} of the epochs of every stage but its first."""
    samples, count = {}, data.check(root)[0]
    for stage in STAGES:
        with tempfile.TemporaryDirectory() as out:
            given = {"DATA": str(root), "OUT": out, "EPOCHS": str(epochs)}
            environment, words = launch.plan(stage, given)
            process_seconds(words, **environment)
            lines = (Path(out) / "metrics.csv").read_text().splitlines()[2:]
        samples[stage] = [count / float(line.split(",")[-1]) for line in lines]
    return samples


def process_counts():
    """Return the numbers of processes to measure: 1, 2, 4 … up to GPUs or CPUs."""
    most = torch.cuda.device_count() or os.cpu_count()
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
    rounds = 2 if quick else 7
    result = {"machine": machine()}
    load_before = result["machine"]["load before"]
    if load_before > 0.5 and not quick:
        print(f"this machine is busy (load {load_before}): the spread will be large")
    with tempfile.TemporaryDirectory() as folder:
        if data.FULL.exists():
            root = data.FULL
        else:
            root = data.SAMPLE if quick else write_synthetic(Path(folder) / "mnist")
        result["images"] = QUICK_IMAGES if quick else data.check(root)[0]
        print("an epoch of stage 1 and of other loops ...", flush=True)
        result["epochs"] = epochs(root, result["images"], rounds)
        if with_peers:
            print("Lightning and Accelerate ...", flush=True)
            result["peers"] = peers(root, 1 + rounds // 2)
            pinned = REQUIREMENTS.read_text().splitlines()
            versions = (line.split("==") for line in pinned if "==" in line)
            result["machine"] |= dict(versions)
        print("the stages ...", flush=True)
        result["stages"] = stages(data.SAMPLE if quick else root, 3 if quick else 5)
    print("steps on 1, 2, 4 … processes ...", flush=True)
    result["scaling"] = scaling(QUICK_CASES if quick else CASES, rounds)
    return result


def main():
    os.chdir(ROOT)
    OUT.mkdir(exist_ok=True)
    torch.set_num_threads(1)
    result = measure(bool(os.environ.get("QUICK")), bool(os.environ.get("PEERS")))
    part = OUT / ".bench.json"
    part.write_text(json.dumps(result, indent=1))
    part.replace(OUT / "bench.json")
    print(f"\n{tables.report(result)}")
    paths = figures.draw_benchmark(result, OUT)
    print(f"\nwritten: runs/bench.json, {', '.join(str(data.shown(p)) for p in paths)}")


if __name__ == "__main__":
    main()
