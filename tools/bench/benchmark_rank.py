"""One process of the benchmark: measures steps of stage 4, and prints samples as JSON.

    torchrun --nproc-per-node=2 tools/bench/benchmark_rank.py '[[128, 64]]' 5

For each [hidden, batch of all processes] and each round, in seconds a step: `step`, as
in the stage (with DDP where there are several processes); `compute`, the same without
the reduction (DDP's no_sync), the mean over the ranks, and `slowest`, its maximum;
`reduce`, a bare all_reduce of as many bytes as the gradients have; `tiny`, of a single
number. Under torchrun, from the root of the repository.
"""

import contextlib
import json
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.benchmark import Timer

SECONDS = 0.15  # a sample takes about so long


def timed(function, count):
    """Return the seconds that a call takes, over `count` calls after a warm-up."""
    return Timer("function()", globals={"function": function}).timeit(count).mean


def measure(stage, hidden, batch, rounds, world_size):
    """Return {name: samples in seconds} for one network and batch."""
    torch.manual_seed(0)
    device = stage.DEVICE
    model = stage.Net(hidden).to(device)
    size = sum(weights.numel() for weights in model.parameters())
    gradients = torch.zeros(size, device=device)
    if world_size > 1:
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    shape = batch // world_size, 28, 28
    images = torch.randint(256, shape, dtype=torch.uint8, device=device)
    labels = torch.randint(10, shape[:1], device=device)

    def step():
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    def compute():
        with model.no_sync() if world_size > 1 else contextlib.nullcontext():
            step()

    for _ in range(3):  # memory, connections, DDP's buckets
        step()
    # As many on each rank: one that took fewer steps would leave the others waiting.
    shared = [max(1, int(SECONDS / timed(step, 2)))]
    dist.broadcast_object_list(shared, 0)
    (count,) = shared
    samples = {name: [] for name in ("step", "compute", "slowest", "reduce", "tiny")}
    for _ in range(rounds):
        samples["step"].append(timed(step, count))
        every = [None] * world_size
        dist.all_gather_object(every, timed(compute, count))
        samples["compute"].append(sum(every) / world_size)
        samples["slowest"].append(max(every))
        dist.barrier()
        samples["reduce"].append(timed(lambda: dist.all_reduce(gradients), count))
        samples["tiny"].append(timed(lambda: dist.all_reduce(gradients[:1]), count))
    return samples


def main():
    sys.path.insert(0, os.getcwd())
    from tools.run.launch import count_gpus
    from tools.run.stages import load

    cases, rounds = json.loads(sys.argv[1]), int(sys.argv[2])
    stage = load("04_ddp")
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    gpus = count_gpus()
    if gpus:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % gpus)
    # Counts and times stay on the CPU: gloo for them, NCCL for gradients.
    backend = "cpu:gloo,cuda:nccl" if gpus >= world_size else "gloo"
    dist.init_process_group(backend)
    found = [
        {"processes": world_size, "hidden": hidden, "batch": batch,
         "samples": measure(stage, hidden, batch, rounds, world_size)}
        for hidden, batch in cases
    ]  # fmt: skip
    if rank == 0:
        print(json.dumps(found), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
