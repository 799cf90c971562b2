"""Measure one GPU in two minutes: `.venv/bin/python -m tools.bench.one_gpu`.

Measures steps of stage 4 with one process, as `make bench` does; when Python has queued
a step and when the GPU has done it; and the memory and speed of blocks of SCALING.md's
transformer. Writes runs/one_gpu.json. The pages show a copy, tools/bench/one_gpu.json.
"""

import json
import os
import time
from statistics import median

import torch
from torch import nn

from tools.bench.benchmark import BATCHES, about, measure
from tools.bench.benchmark_rank import timed
from tools.bench.scaling import SEVEN
from tools.run.data import shown
from tools.run.gpus import choose_gpus, count_gpus
from tools.run.stages import ROOT, load, make_folder, refuse

STEPS = 10  # measured, after as many for warm-up
BLOCKS = [(4, 1), (8, 2)]  # blocks of the transformer, sequences
HEADS = 32


def summary(samples):
    """Return the minimum, median and maximum of samples."""
    return [min(samples), median(samples), max(samples)]


def queue(width, batch):
    """Return ms from the start of a step until Python queued it, and until it ended."""
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
    return {**case, "asked": summary(asked[STEPS:]), "done": summary(done[STEPS:])}


def blocks(count, sequences):
    """Return a dict of the memory and time of transformer blocks in bfloat16.

    `kept` is the bytes saved for the backward pass, `ms` the time of both passes
    without the optimizer.
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
    samples = [1000 * timed(both_passes, 20) for _ in range(3)]
    weights = sum(weight.numel() for weight in model.parameters())
    case = {"blocks": count, "sequences": sequences, "weights": weights}
    return {**case, **held, "ms": summary(samples)}


def main():
    os.chdir(ROOT)
    if not count_gpus():
        refuse("no GPU to measure. To see why, run make doctor")
    out = make_folder()
    (visible,) = choose_gpus("0")  # the first that this process sees
    result = {"machine": about([torch.cuda.get_device_name()])}
    result["scaling"] = measure([1], BATCHES, 4, visible)
    for case in result["scaling"]:
        for work, samples in case["samples"].items():
            case["samples"][work] = summary(samples)
    result["queue"] = [queue(128, 64), queue(2048, 1024)]
    result["blocks"] = [blocks(*sizes) for sizes in BLOCKS]
    (out / "one_gpu.json").write_text(json.dumps(result, indent=1))
    print(f"wrote {shown(out / 'one_gpu.json')}")


if __name__ == "__main__":
    main()
