"""One process of the benchmark: measures steps of stage 4, and prints samples as JSON.

    torchrun --nproc-per-node=2 tools/bench/benchmark_rank.py '[[128, 64], [2048, 1024]]' 5

For each [hidden, batch of all processes] and each round, in seconds a step: `step`, as in
the stage (with DDP where there are several processes); `compute`, the same without the
reduction (DDP's no_sync), the mean over the ranks, and `slowest`, its maximum; `reduce`, a
bare all_reduce of as many bytes as the gradients have; `tiny`, of a single number.
"""

import contextlib
import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

SECONDS = 0.15  # a sample takes about so long


def prepare(stage, hidden, batch, world_size, options):
    """Return (network, step function, tensor as large as the gradients)."""
    torch.manual_seed(0)
    device = stage.DEVICE
    model = stage.Net(hidden).to(device)
    size = sum(weights.numel() for weights in model.parameters())
    if world_size > 1:
        model = nn.parallel.DistributedDataParallel(model, **options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    shape = batch // world_size, 28, 28
    images = torch.randint(256, shape, dtype=torch.uint8, device=device)
    labels = torch.randint(10, shape[:1], device=device)

    def step():
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return model, step, torch.zeros(size, device=device)


def timed(function, count, device):
    """Return the seconds that a call takes, over `count` calls."""
    if device == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(count):
        function()
    if device == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - start) / count


def measure(stage, hidden, batch, rounds, world_size, options):
    """Return {name: samples in seconds} for one network and batch."""
    model, step, gradients = prepare(stage, hidden, batch, world_size, options)

    def alone():
        with model.no_sync() if world_size > 1 else contextlib.nullcontext():
            step()

    def reduce():
        dist.all_reduce(gradients)

    def tiny():
        dist.all_reduce(gradients[:1])

    for _ in range(3):  # warm-up: memory, connections, DDP's buckets
        step()
    count = torch.tensor(max(1, int(SECONDS / timed(step, 2, stage.DEVICE))))
    if world_size > 1:
        dist.broadcast(count, 0)
    count = count.item()
    names = ["step", "compute"] + ["slowest", "reduce", "tiny"] * (world_size > 1)
    samples = {name: [] for name in names}
    for _ in range(rounds):
        samples["step"].append(timed(step, count, stage.DEVICE))
        own = torch.tensor([timed(alone, count, stage.DEVICE)])
        if world_size > 1:
            every = [torch.zeros(1) for _ in range(world_size)]
            dist.all_gather(every, own)
            samples["compute"].append(torch.cat(every).mean().item())
            samples["slowest"].append(torch.cat(every).max().item())
            dist.barrier()
            samples["reduce"].append(timed(reduce, count, stage.DEVICE))
            samples["tiny"].append(timed(tiny, count, stage.DEVICE))
        else:
            samples["compute"].append(own.item())
    return samples


def main():
    sys.path.insert(0, os.getcwd())
    from tools.run.stages import load

    cases, rounds = json.loads(sys.argv[1]), int(sys.argv[2])
    options = json.loads(sys.argv[3]) if sys.argv[3:] else {}
    stage = load("04_ddp")
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    gpus = torch.cuda.device_count()
    if gpus:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % gpus)
    # Small tensors (counts, times) stay on the CPU: gloo for them, NCCL for gradients.
    backend = "cpu:gloo,cuda:nccl" if gpus >= world_size else "gloo"
    if world_size > 1:
        dist.init_process_group(backend)
    found = [
        {
            "processes": world_size, "hidden": hidden, "batch": batch,
            "samples": measure(stage, hidden, batch, rounds, world_size, options),
        }
        for hidden, batch in cases
    ]  # fmt: skip
    if rank == 0:
        print(json.dumps(found), flush=True)
    if world_size > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
