"""One process of the benchmark: measures steps of stage 4, and prints samples as JSON.

Its words are the cases, [[hidden, batch of all processes]], and the rounds. For each
case and round, in seconds per step: `step`, as in the stage; with several processes
also `compute`, the same without the all-reduce (DDP's no_sync), the mean over the
ranks. `tools.run.ranks` starts it.
"""

import json
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.benchmark import Timer

from tools.run.gpus import count_gpus
from tools.run.stages import load

SECONDS = 0.15  # a sample takes about so long


def timed(function, count):
    """Return the seconds that a call takes, over `count` calls after a warm-up."""
    return Timer("function()", globals={"function": function}).timeit(count).mean


def measure(stage, hidden, batch, rounds, world_size):
    """Return {name: samples in seconds} for one network and batch."""
    torch.manual_seed(0)
    model = stage.Net(hidden).to(stage.DEVICE)
    if world_size > 1:
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    count = batch // world_size
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

    for _ in range(3):  # memory, connections, DDP's buckets
        step()
    # As many on each rank: one that took fewer steps would leave the others waiting.
    calls = torch.tensor(max(1, int(SECONDS / timed(step, 2))))
    dist.broadcast(calls, 0)
    samples = {"step": []}
    for _ in range(rounds):
        samples["step"].append(timed(step, calls.item()))
        if world_size > 1:
            seconds = torch.tensor(timed(compute, calls.item()))
            dist.all_reduce(seconds)
            samples.setdefault("compute", []).append(seconds.item() / world_size)
    return samples


def main():
    cases = json.loads(sys.argv[1])
    rounds = int(sys.argv[2])
    stage = load("04_ddp")
    world_size = int(os.environ["WORLD_SIZE"])
    gpus = count_gpus()
    if gpus:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % gpus)
    # Counts and times stay on the CPU: gloo for them, NCCL for gradients.
    backend = "cpu:gloo,cuda:nccl" if gpus >= world_size else "gloo"
    dist.init_process_group(backend)
    found = []
    for hidden, batch in cases:
        case = {"processes": world_size, "hidden": hidden, "batch": batch}
        case["samples"] = measure(stage, hidden, batch, rounds, world_size)
        found.append(case)
    if dist.get_rank() == 0:
        print(json.dumps(found), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
