"""Measure how fast the stages are on this machine, and draw it: `python -m tools.bench.benchmark`.

Candidates take turns, one thread a process, warm-up left out; tables show medians and their
spread. Writes runs/bench.json with every sample. PEERS=1 measures Lightning and Accelerate
too, in an environment of their own; QUICK=1 makes few and short rounds, to try it out.
"""

import json
import os
import platform
import statistics
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

from tools.run import data, launch, ranks
from tools.run.stages import ROOT, STAGES, load, refuse

QUICK = bool(os.environ.get("QUICK"))
ROUNDS = 2 if QUICK else 7
OUT = ROOT / "runs"
CASES = [  # hidden, batch of all processes
    (128, 64), (128, 256), (128, 1024), (128, 4096),
    (512, 256), (512, 1024),
    (2048, 64), (2048, 256), (2048, 1024), (2048, 4096),
    (4096, 1024),
]  # fmt: skip
TUTORIAL = 128, 64
if QUICK:
    CASES = [TUTORIAL, (128, 256), (512, 256), (512, 1024)]
PEERS = OUT / "peers"
COLUMNS = ["hidden", "batch", "processes", "ms a step", "speed-up", "efficiency"]
COLUMNS += ["communication", "waiting", "bare `all_reduce`, ms"]


def spread(samples):
    """Return the median, and the smallest and largest, of a list of numbers."""
    return statistics.median(samples), min(samples), max(samples)


def with_spread(samples, unit="s", digits=2):
    """Return a median with its spread, as text."""
    middle, low, high = spread(samples)
    return f"{middle:.{digits}f} {unit} ({low:.{digits}f} to {high:.{digits}f})"


def ratios(a, b):
    """Return the ratios of samples that were taken in turns."""
    return [x / y for x, y in zip(a, b, strict=True)]


def machine():
    """Return what the measurements depend on."""
    model = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        text = Path("/proc/cpuinfo").read_text()
        model = text.partition("model name\t: ")[2].partition("\n")[0] or model
    return {
        "processor": model,
        "cores": psutil.cpu_count(logical=False) or os.cpu_count(),
        "cpus": os.cpu_count(),
        "gpus": [
            torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count())
        ],
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "torchvision": torchvision.__version__,
        "load before": round(psutil.getloadavg()[0], 2),
    }


def full_size(root):
    """Write a MNIST root of 60,000 synthetic images, as large as the real one."""
    from tools.run.sample import write_part

    generator = torch.Generator().manual_seed(0)
    for part, count in ("train", 60_000), ("t10k", 10_000):
        images = torch.randint(
            256, (count, 784), generator=generator, dtype=torch.uint8
        )
        labels = torch.randint(10, (count,), generator=generator, dtype=torch.uint8)
        write_part(root, part, images.numpy().tobytes(), labels.numpy().tobytes())
    return root


def epochs(root):
    """Return {name: seconds an epoch} of stage 1, the plain loop and the bare loop."""
    stage = load("01_cpu")
    train = data.tensors(root)
    if QUICK:
        train = TensorDataset(*train[:4000])

    def fresh():
        torch.manual_seed(0)
        model = stage.Net(128)
        return model, torch.optim.SGD(model.parameters(), lr=0.1)

    def stage_1():
        sampler = RandomSampler(train, generator=torch.Generator())
        batches = BatchSampler(sampler, 64, drop_last=False)
        loader = DataLoader(train, batch_size=None, sampler=batches)
        model, optimizer = fresh()
        stage.train_epoch(model, loader, optimizer)

    def usual_loop():  # as most tutorials have it
        images = datasets.MNIST(root, transform=transforms.ToTensor())
        images.data, images.targets = train.tensors
        loader = DataLoader(images, 64, shuffle=True, num_workers=2)
        model, optimizer = fresh()
        stage.train_epoch(model.layers, loader, optimizer)  # ToTensor has divided

    def typed():
        torch.set_num_threads(os.cpu_count())
        usual_loop()
        torch.set_num_threads(1)

    def bare():  # the limit: no loader, nothing but the steps
        model, optimizer = fresh()
        for indices in torch.randperm(len(train)).split(64):
            images, labels = train[indices]
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    candidates = {"stage 1": stage_1, "plain": usual_loop, "typed": typed, "bare": bare}
    samples = {name: [] for name in candidates}
    bare()  # warm-up
    for _ in range(ROUNDS):
        for name, candidate in candidates.items():
            start = time.perf_counter()
            candidate()
            samples[name].append(time.perf_counter() - start)
    return samples


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


def peers(root):
    """Return {name: seconds} of three epochs, whole processes and steady epochs.

    Makes an environment that adds Lightning and Accelerate to this one.
    """
    python = PEERS / "bin" / "python"
    if not (PEERS / "ready").exists():
        print(
            f"making {data.shown(PEERS)} for Lightning and Accelerate ...", flush=True
        )
        subprocess.run([sys.executable, "-m", "venv", PEERS], check=True)
        (site,) = PEERS.glob("lib/python*/site-packages")
        here = Path(torch.__file__).parent.parent
        (site / "this.pth").write_text(f"{here}\n")
        words = [python, "-m", "pip", "install", "-q", "lightning", "accelerate"]
        if subprocess.run(words).returncode:
            refuse(
                "pip could not install lightning and accelerate: without PEERS=1, then"
            )
        (PEERS / "ready").touch()
    samples = {}
    with tempfile.TemporaryDirectory() as out:
        commands = {
            "stage 1": [
                sys.executable,
                "01_cpu/mnist.py",
                "--data",
                root,
                "--out",
                out,
            ],
            "Lightning": [python, "tools/bench/peers.py", "lightning", root],
            "Accelerate": [python, "tools/bench/peers.py", "accelerate", root],
            "Lightning, the plain loader": [
                python,
                "tools/bench/peers.py",
                "lightning",
                root,
                "1",
            ],
            "Accelerate, the plain loader": [
                python,
                "tools/bench/peers.py",
                "accelerate",
                root,
                "1",
            ],
        }
        for _ in range(1 + ROUNDS // 2):
            for name, words in commands.items():
                samples.setdefault(name, []).append(process_seconds(words))
    return samples


def versions():
    """Return the versions of Lightning and Accelerate that `peers` measured."""
    code = "import importlib.metadata as m; print(*map(m.version, ['lightning', 'accelerate']))"
    words = [PEERS / "bin" / "python", "-c", code]
    found = subprocess.run(
        words, capture_output=True, text=True, check=True
    ).stdout.split()
    return dict(zip(["lightning", "accelerate"], found, strict=True))


def stages(root):
    """Return {stage: images a second} of the epochs of every stage but its first."""
    samples = {}
    for stage in STAGES:
        with tempfile.TemporaryDirectory() as out:
            epoch = "3" if QUICK else "5"
            given = {"DATA": str(root), "OUT": out, "EPOCHS": epoch}
            environment, words = launch.plan(stage, given)
            process_seconds(words, **environment)
            count = data.check(root)[0]
            lines = (Path(out) / "metrics.csv").read_text().splitlines()[2:]
            samples[stage] = [count / float(line.split(",")[-1]) for line in lines]
    return samples


def counts():
    """Return the numbers of processes to measure: 1, 2, 4 … up to GPUs or cores."""
    most = torch.cuda.device_count() or os.cpu_count()
    found = [1]
    while found[-1] * 2 <= most:
        found.append(found[-1] * 2)
    return found


def scaling(options=None):
    """Return the measurements of tools/bench/benchmark_rank.py, the numbers of processes in turns."""
    found = {}
    for half in range(2):  # in turns, so that a busy moment does not hit one alone
        for processes in counts():
            words = [
                ROOT / "tools/bench/benchmark_rank.py",
                json.dumps(CASES),
                -(-ROUNDS // 2),
            ]
            words += [json.dumps(options or {})]
            result = ranks.run(words, processes, timeout=1800, gpus=True)
            if result.returncode:
                refuse(f"{processes} processes failed:\n{result.stderr[-2000:]}")
            for case in json.loads(result.stdout):
                key = case["processes"], case["hidden"], case["batch"]
                samples = found.setdefault(key, {**case, "samples": {}})["samples"]
                for name, more in case["samples"].items():
                    samples.setdefault(name, []).extend(more)
        print(f"  {half + 1} of 2 turns", flush=True)
    return list(found.values())


def by_case(scaled):
    """Return {(hidden, batch): {processes: samples}} of what `scaling` returned."""
    found = {}
    for case in scaled:
        key = case["hidden"], case["batch"]
        found.setdefault(key, {})[case["processes"]] = case["samples"]
    return found


def report(result):
    """Return the lines of the tables of a benchmark, as Markdown."""
    where = result["machine"]
    on = ", ".join(where["gpus"]) or "no GPU"
    names = "Python", "PyTorch", "Lightning", "Accelerate"
    keys = "python", "torch", "lightning", "accelerate"
    known = [f"{n} {where[k]}" for n, k in zip(names, keys, strict=True) if k in where]
    text = f"Measured on {where['cpus']} CPUs ({where['processor']}), {on}; "
    text += f"{', '.join(known)}. Medians, and in brackets the smallest and largest."
    lines = [
        text,
        "",
        f"| an epoch of {result['images']:,} images, one process | seconds | times stage 1 |",
        "|---|---:|---:|",
    ]
    names = {
        "stage 1": "stage 1",
        "plain": "the plain loop: `ToTensor`, two workers",
        "typed": "the same with PyTorch's default threads",
        "bare": "a bare loop over tensors",
    }
    first = result["epochs"]["stage 1"]
    for key, name in names.items():
        samples = result["epochs"][key]
        lines.append(
            f"| {name} | {with_spread(samples, '')} | {with_spread(ratios(samples, first), '')} |"
        )
    if result.get("peers"):
        lines += ["", "| three epochs, the whole process | seconds | times stage 1 |",
                  "|---|---:|---:|"]  # fmt: skip
        first = result["peers"]["stage 1"]
        for name, samples in result["peers"].items():
            lines.append(
                f"| {name} | {with_spread(samples, '')} | {with_spread(ratios(samples, first), '')} |"
            )
    lines += ["", "| stage | images a second, evaluation included |", "|---|---:|"]
    for stage, samples in result["stages"].items():
        middle, low, high = (f"{value:,.0f}" for value in spread(samples))
        lines.append(f"| `{stage}` | {middle} ({low} to {high}) |")
    lines += [
        "",
        "| " + " | ".join(COLUMNS) + " |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for (hidden, batch), group in by_case(result["scaling"]).items():
        alone = statistics.median(group[1]["step"])
        for processes, samples in sorted(group.items()):
            step = statistics.median(samples["step"])
            row = f"| {hidden} | {batch} | {processes} | "
            row += with_spread([1000 * s for s in samples["step"]], "")
            if processes > 1:
                _, waiting, talking = split(samples)
                speed = alone / step
                row += (
                    f" | {speed:.2f} | {speed / processes:.0%} | {talking / step:.0%} "
                )
                row += f"| {waiting / step:.0%} | "
                row += f"{1000 * statistics.median(samples['reduce']):.2f} |"
            else:
                row += " | 1 | 100% | – | – | – |"
            lines.append(row)
    lines += ["", *verdicts(result)]
    return lines


def split(samples):
    """Return a step's computing, waiting and communicating, in seconds (medians)."""
    compute = statistics.median(samples["compute"])
    step = statistics.median(samples["step"])
    waiting = max(0.0, statistics.median(samples["slowest"]) - compute)
    return compute, waiting, max(0.0, step - compute - waiting)


def verdicts(result):
    """Return sentences on where DDP overtakes one process, and what an exchange costs."""
    lines, groups = [], by_case(result["scaling"])
    most = max(processes for group in groups.values() for processes in group)
    if most == 1:
        return [
            "One process is all that this machine has room for: nothing to compare."
        ]
    for hidden in sorted({hidden for hidden, _ in groups}):
        faster = [
            batch for (width, batch), group in sorted(groups.items()) if width == hidden
            and statistics.median(group[1]["step"]) > statistics.median(group[most]["step"])
        ]  # fmt: skip
        where = (
            f"from batches of {min(faster)} on" if faster else "at no batch size tried"
        )
        lines.append(f"- {hidden} wide: {most} processes are faster than one {where}.")
    samples = groups[CASES[0] if TUTORIAL not in groups else TUTORIAL][most]
    whole = [c + r for c, r in zip(samples["slowest"], samples["reduce"], strict=True)]
    lines.append(
        "- DDP's step on the tutorial's network takes "
        f"{with_spread(ratios(samples['step'], whole), 'times')} its computing and a bare "
        f"`all_reduce` of its gradients, which takes {with_spread([1000 * t for t in samples['reduce']], 'ms')}; "
        f"one of a single number takes {with_spread([1000 * t for t in samples['tiny']], 'ms')}."
    )
    return lines


def draw(result, folder):
    """Draw speed-up and efficiency, and the parts of a step; return the paths."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    groups = by_case(result["scaling"])
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    colours = plt.colormaps["viridis"]
    numbers = sorted({processes for group in groups.values() for processes in group})
    left.plot(numbers, numbers, "--", color="grey", label="ideal")
    right.axhline(100, linestyle="--", color="grey")
    for index, ((hidden, batch), group) in enumerate(groups.items()):
        alone = statistics.median(group[1]["step"])
        speed = [alone / statistics.median(group[n]["step"]) for n in sorted(group)]
        style = {"marker": "o", "color": colours(0.9 * index / max(len(groups) - 1, 1)),
                 "label": f"{hidden} wide, batch {batch}"}  # fmt: skip
        left.plot(sorted(group), speed, **style)
        share = [100 * s / n for s, n in zip(speed, sorted(group), strict=True)]
        right.plot(sorted(group), share, **style)
    left.set(xlabel="processes", ylabel="speed-up (times one process)")
    right.set(xlabel="processes", ylabel="efficiency (%)", ylim=(0, None))
    for axes in left, right:
        axes.set_xticks(numbers)
        axes.grid(alpha=0.3)
    figure.legend(
        *left.get_legend_handles_labels(), loc="outside right center", fontsize=8
    )
    paths = [folder / "bench_speedup.png"]
    figure.savefig(paths[0], dpi=120)
    plt.close(figure)

    most = numbers[-1]
    if most > 1:
        figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
        bottoms = [0.0] * len(groups)
        names = [f"{hidden}\n{batch}" for hidden, batch in groups]
        parts = [split(group[most]) for group in groups.values()]
        kinds = (
            ("computing", "#1f6fb4"),
            ("waiting", "#c5cbd1"),
            ("communicating", "#d9731a"),
        )
        for place, (kind, colour) in enumerate(kinds):
            shares = [100 * part[place] / sum(part) for part in parts]
            axes.bar(names, shares, bottom=bottoms, color=colour, label=kind)
            bottoms = [low + share for low, share in zip(bottoms, shares, strict=True)]
        for place, part in enumerate(parts):
            axes.text(place, 101, f"{1000 * sum(part):.1f}", ha="center", fontsize=8)
        axes.set(ylabel="share of a step (%)", ylim=(0, 112),
                 xlabel="width of the hidden layer, batch of all processes")  # fmt: skip
        axes.set_title(f"A step on {most} processes; above: milliseconds", fontsize=10)
        figure.legend(loc="outside lower center", ncols=3)
        paths.append(folder / "bench_step.png")
        figure.savefig(paths[1], dpi=120)
        plt.close(figure)
    return paths


def main():
    os.chdir(ROOT)
    OUT.mkdir(exist_ok=True)
    torch.set_num_threads(1)
    result = {"machine": machine()}
    if result["machine"]["load before"] > 0.5 and not QUICK:
        print(f"this machine is busy (load {result['machine']['load before']}): the spread "
              "will be large")  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        root = data.FULL if data.FULL.exists() else None
        if root is None:
            root = data.SAMPLE if QUICK else full_size(Path(folder) / "mnist")
        result["images"] = 4000 if QUICK else data.check(root)[0]
        print("an epoch of stage 1 and of two other loops ...", flush=True)
        result["epochs"] = epochs(root)
        if os.environ.get("PEERS"):
            print("Lightning and Accelerate ...", flush=True)
            result["peers"] = peers(root)
            result["machine"] |= versions()
        print("the stages ...", flush=True)
        result["stages"] = stages(data.SAMPLE if QUICK else root)
    print("steps on 1, 2, 4 … processes ...", flush=True)
    result["scaling"] = scaling()
    part = OUT / ".bench.json"
    part.write_text(json.dumps(result, indent=1))
    part.replace(OUT / "bench.json")
    print()
    print("\n".join(report(result)))
    paths = draw(result, OUT)
    print(f"\nwritten: runs/bench.json, {', '.join(str(data.shown(p)) for p in paths)}")


if __name__ == "__main__":
    main()
