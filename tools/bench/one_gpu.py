"""Measure one GPU: `.venv/bin/python -m tools.bench.one_gpu`, in two minutes.

Steps of stage 4 with one process, as `make bench` measures them; how long Python asks
for a step and when the GPU has done it; what blocks of SCALING's transformer keep for
the backward pass, and how fast they compute. Writes runs/one_gpu.json, of which the
pages show a copy, tools/bench/one_gpu.json.
"""

import json
import os
import platform
import time
from statistics import median

import torch
from torch import nn

from tools.bench.benchmark import BATCHES, measure
from tools.bench.scaling import FLOPS, SEVEN
from tools.bench.tables import by_case, published
from tools.run.data import shown
from tools.run.gpus import count_cpus, count_gpus
from tools.run.stages import ROOT, load, make_folder, refuse

SIZES = [(128, 64), (128, 4096), (2048, 64), (2048, 1024), (2048, 4096), (4096, 1024)]
STEPS = 10  # that are kept of twice as many
BLOCKS = [(4, 1), (8, 2)]  # blocks of the transformer, sequences
HEADS = 32


def queue(width, batch):
    """Return ms since the start of a step, samples: asked for by Python, and done."""
    stage = load("02_single_gpu")
    model = stage.Net(width).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    images = torch.randint(256, (batch, 28, 28), dtype=torch.uint8).cuda()
    labels = torch.randint(10, (batch,)).cuda()
    asked = []
    done = []
    for _ in range(2 * STEPS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        asked.append(1000 * (time.perf_counter() - start))
        torch.cuda.synchronize()
        done.append(1000 * (time.perf_counter() - start))
    case = {"hidden": width, "batch": batch}
    return {**case, "asked": asked[STEPS:], "done": done[STEPS:]}


def timed(function, calls):
    """Return the ms that a call takes, of so many."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(calls):
        function()
    torch.cuda.synchronize()
    return 1000 * (time.perf_counter() - start) / calls


def blocks(count, sequences):
    """Return what blocks of a transformer keep and take, in bfloat16, a dict.

    `kept` are the bytes that the forward pass leaves for the backward pass, `ms`
    samples of both passes; the optimizer is left out.
    """
    gpt = load("13_gpt")
    gpt.WIDTH = SEVEN.width
    gpt.HEADS = HEADS
    model = nn.Sequential(*[gpt.Block() for _ in range(count)])
    model.to("cuda", torch.bfloat16)
    shape = sequences, SEVEN.length, SEVEN.width
    x = torch.randn(shape, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    outer = torch.randn_like(x)
    held = {}

    def both_passes():
        model.zero_grad(set_to_none=False)
        before = torch.cuda.memory_allocated()
        y = model(x)
        held["kept"] = torch.cuda.memory_allocated() - before
        y.backward(outer)

    timed(both_passes, 5)
    samples = [timed(both_passes, 20) for _ in range(3)]
    weights = sum(weight.numel() for weight in model.parameters())
    case = {"blocks": count, "sequences": sequences, "weights": weights}
    return {**case, **held, "ms": samples}


def measured():
    """Return what the pages show."""
    return json.loads((ROOT / "tools/bench/one_gpu.json").read_text())


def step_rows():
    """Return the rows of a table of steps on a CPU and on the GPU, headings first."""
    on_cpu = by_case(published())
    on_gpu = by_case(measured())
    rows = [["hidden", "batch", "one CPU core, ms", "with the GPU, ms"]]
    for size in SIZES:
        times = [median(found[size][1]["step"]) for found in (on_cpu, on_gpu)]
        rows.append([*size, *[f"{1000 * seconds:.2f}" for seconds in times]])
    return rows


def queue_rows():
    """Return the rows of a table of when a step is asked for, and done."""
    rows = [["hidden", "batch", "Python has asked, ms", "the GPU is done, ms"]]
    for case in measured()["queue"]:
        times = [f"{median(case[name]):.2f}" for name in ("asked", "done")]
        rows.append([case["hidden"], case["batch"], *times])
    return rows


def block_rows():
    """Return the rows of a table of blocks beside the formulas, headings first."""
    rows = [["blocks", "sequences", "kept, GB", "by formula, GB", "both passes, ms"]]
    rows[0].append("of the peak")
    for case in measured()["blocks"]:
        tokens = case["sequences"] * SEVEN.length
        by_formula = 16 * 2 * tokens * SEVEN.width * case["blocks"]
        seconds = median(case["ms"]) / 1000
        share = 6 * case["weights"] * tokens / seconds / FLOPS
        sizes = [f"{size / 1e9:.2f}" for size in (case["kept"], by_formula)]
        times = f"{1000 * seconds:.1f}", f"{share:.0%}"
        rows.append([case["blocks"], case["sequences"], *sizes, *times])
    return rows


TABLES = {"steps": step_rows, "queue": queue_rows, "blocks": block_rows}


def main():
    os.chdir(ROOT)
    if not count_gpus():
        refuse("there is no GPU to measure: 'make doctor' says why")
    out = make_folder()
    about = {
        "cpus": count_cpus(),
        "gpus": [torch.cuda.get_device_name()],
        "python": platform.python_version(),
        "torch": torch.__version__,
    }
    result = {"machine": about, "scaling": measure([1], BATCHES, 4, "0")}
    result["queue"] = [queue(128, 64), queue(2048, 1024)]
    result["blocks"] = [blocks(*sizes) for sizes in BLOCKS]
    (out / "one_gpu.json").write_text(json.dumps(result, indent=1))
    print(f"written: {shown(out / 'one_gpu.json')}")


if __name__ == "__main__":
    main()
