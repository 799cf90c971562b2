"""Measure steps of stage 4 in one process of the benchmark.

Its arguments are {hidden: [global batch, ...]}, the number of rounds, and a file to
which rank 0 writes the results. `onecurve.api.run` starts it.
"""

import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.benchmark import Timer

from tools.run.stages import load

SECONDS = 0.15  # per sample, approximately


def timed(function, count):
    """Return the mean seconds per call, rounded, over `count` calls after a warm-up."""
    timer = Timer("function()", globals={"function": function})
    return float(f"{timer.timeit(count).mean:.6g}")


def measure(stage, hidden, batch, rounds):
    """Return a dict of processes, hidden, batch and samples for a network and batch.

    `samples` is {work: [seconds per step in each round]}. `step` is the stage's step;
    with several processes, `compute` is a step without the all-reduce.
    """
    processes = dist.get_world_size()
    model = stage.Net(hidden).to(stage.DEVICE)
    if processes > 1:
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    count = batch // processes
    images = torch.randint(256, (count, 28, 28), dtype=torch.uint8).to(stage.DEVICE)
    labels = torch.randint(10, (count,)).to(stage.DEVICE)

    def step():
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    def compute():
        with model.no_sync():
            step()

    work = {"step": step}
    if processes > 1:
        work["compute"] = compute
    for function in work.values():
        timed(function, 3)  # warm up memory, connections, DDP's buckets
    # All ranks must take the same number of steps, or some would wait forever.
    calls = torch.tensor(max(1, int(SECONDS / timed(step, 2))))
    dist.broadcast(calls, 0)
    samples = {name: [] for name in work}
    for _ in range(rounds):
        for name, function in work.items():
            samples[name].append(timed(function, calls.item()))
    case = {"processes": processes, "hidden": hidden, "batch": batch}
    return {**case, "samples": samples}


def main():
    sizes = json.loads(sys.argv[1])
    rounds = int(sys.argv[2])
    stage = load("04_ddp")
    backend = "gloo"
    if stage.DEVICE == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        backend = "cpu:gloo,cuda:nccl"  # counts are on the CPU, gradients on the GPUs
    dist.init_process_group(backend)
    cases = []
    for hidden, batches in sizes.items():
        for batch in batches:
            cases.append(measure(stage, int(hidden), batch, rounds))
    if dist.get_rank() == 0:
        Path(sys.argv[3]).write_text(json.dumps(cases))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
