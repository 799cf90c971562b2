"""One process of the benchmark: it measures steps of stage 4.

Its words are the cases, [[hidden, batch of all processes]], the rounds, and a folder:
rank R writes R.json there, a record of each case. `tools.run.ranks` starts it.
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

SECONDS = 0.15  # a sample takes about so long


def timed(function, count):
    """Return the seconds that a call takes, over `count` calls after a warm-up."""
    return Timer("function()", globals={"function": function}).timeit(count).mean


def have_equal_gradients(model):
    """Return whether the gradients of all ranks have one sum."""
    size = sum(weight.grad.double().abs().sum() for weight in model.parameters())
    sizes = [torch.zeros_like(size, device="cpu") for _ in range(dist.get_world_size())]
    dist.all_gather(sizes, size.cpu())
    return len({one.item() for one in sizes}) == 1


def measure(stage, hidden, batch, rounds):
    """Return the record of one network and batch on this rank, a dict.

    images    how many of the batch it takes in a step
    device    where it computes
    samples   {work: seconds per step, a list}: `step` is a step of the stage; with
              several processes there is `compute`, too, without the all-reduce
    averaged  {work: whether all ranks have equal gradients after it}
    """
    torch.manual_seed(0)
    model = stage.Net(hidden).to(stage.DEVICE)
    if dist.get_world_size() > 1:
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(dist.get_rank())  # other images, so other gradients
    count = batch // dist.get_world_size()
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
    if dist.get_world_size() > 1:
        work["compute"] = compute
    record = {"images": len(images), "device": str(images.device)}
    record |= {"samples": {name: [] for name in work}, "averaged": {}}
    for name, function in work.items():
        for _ in range(3):  # memory, connections, DDP's buckets
            function()
        record["averaged"][name] = have_equal_gradients(model)
    # As many on each rank: one that took fewer steps would leave the others waiting.
    calls = torch.tensor(max(1, int(SECONDS / timed(step, 2))))
    dist.broadcast(calls, 0)
    for _ in range(rounds):
        for name, function in work.items():
            record["samples"][name].append(timed(function, calls.item()))
    return record


def main():
    cases = json.loads(sys.argv[1])
    rounds = int(sys.argv[2])
    folder = Path(sys.argv[3])
    stage = load("04_ddp")
    backend = "gloo"
    if stage.DEVICE == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        backend = "cpu:gloo,cuda:nccl"  # counts are on the CPU, gradients on GPUs
    dist.init_process_group(backend)
    records = [measure(stage, hidden, batch, rounds) for hidden, batch in cases]
    (folder / f"{dist.get_rank()}.json").write_text(json.dumps(records))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
