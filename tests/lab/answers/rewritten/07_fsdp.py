"""Stage 7 from scratch: no data loader, and the network is cut as a whole."""

import argparse
import pathlib
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
import torchvision
from torch.distributed.checkpoint import state_dict as whole
from torch.distributed.fsdp import fully_shard

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", default=3, type=int)
parser.add_argument("--batch-size", default=64, type=int)
parser.add_argument("--lr", default=0.1, type=float)
parser.add_argument("--hidden", default=128, type=int)
parser.add_argument("--seed", default=0, type=int)
parser.add_argument("--data", default="data/mnist")
parser.add_argument("--out", default="runs/rewritten", type=pathlib.Path)
parser.add_argument("--backend", default="gloo")
options = parser.parse_args()
options.out.mkdir(parents=True, exist_ok=True)

dist.init_process_group(options.backend)
rank, size = dist.get_rank(), dist.get_world_size()


def load(train):
    digits = torchvision.datasets.MNIST(options.data, train=train)
    pixels = digits.data.to(torch.get_default_dtype()).div(255).flatten(1)
    return pixels, digits.targets


x, y = load(True)
x_test, y_test = load(False)
torch.manual_seed(options.seed)
net = torch.nn.Sequential(
    torch.nn.Linear(784, options.hidden),
    torch.nn.ReLU(),
    torch.nn.Linear(options.hidden, 10),
)
fully_shard(net, mesh=dist.init_device_mesh("cpu", (size,)))
optimizer = torch.optim.SGD(net.parameters(), options.lr)
rows = ["epoch,loss,correct,total,seconds"]
for epoch in range(1, options.epochs + 1):
    begin, total = time.time(), torch.zeros(2)
    generator = torch.Generator().manual_seed(options.seed + epoch)
    order = torch.randperm(len(x), generator=generator)
    order = torch.cat([order, order[: -len(x) % size]])[rank::size]
    for chosen in order.split(options.batch_size // size):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x[chosen]), y[chosen])
        loss.backward()
        optimizer.step()
        total += torch.tensor([loss.item() * len(chosen), len(chosen)])
    dist.all_reduce(total)
    with torch.no_grad():  # each rank has all test images
        correct = int((net(x_test).argmax(1) == y_test).sum())
    loss = float(total[0] / total[1])
    rows.append(f"{epoch},{loss},{correct},{len(x_test)},{time.time() - begin}")
state = whole.get_model_state_dict(
    net, options=whole.StateDictOptions(full_state_dict=True, cpu_offload=True)
)
if rank == 0:
    print(*rows, sep="\n")
    (options.out / "metrics.csv").write_text("\n".join(rows) + "\n")
    torch.save(state, options.out / "model.pth")
dist.barrier()
dist.destroy_process_group()
