"""Stage 8 from scratch: no DTensor, and each rank's part is a network of its own."""

import argparse
import pathlib
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
import torchvision

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


class Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, part):
        whole = part.clone()
        dist.all_reduce(whole)
        return whole

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Part(torch.nn.Module):
    def __init__(self):
        super().__init__()
        first = torch.nn.Linear(784, options.hidden)
        second = torch.nn.Linear(options.hidden, 10)
        own = torch.arange(options.hidden).chunk(size)[rank]
        self.w1 = torch.nn.Parameter(first.weight.data[own].clone())
        self.b1 = torch.nn.Parameter(first.bias.data[own].clone())
        self.w2 = torch.nn.Parameter(second.weight.data[:, own].clone())
        self.b2 = torch.nn.Parameter(second.bias.data)

    def forward(self, pixels):
        part = F.relu(F.linear(pixels, self.w1, self.b1)) @ self.w2.T
        return Sum.apply(part) + self.b2


def load(train):
    digits = torchvision.datasets.MNIST(options.data, train=train)
    pixels = digits.data.to(torch.get_default_dtype()).div(255).flatten(1)
    return pixels, digits.targets


x, y = load(True)
x_test, y_test = load(False)
torch.manual_seed(options.seed)
net = Part()
optimizer = torch.optim.SGD(net.parameters(), options.lr)
rows = ["epoch,loss,correct,total,seconds"]
for epoch in range(1, options.epochs + 1):
    begin, total = time.time(), 0.0
    generator = torch.Generator().manual_seed(options.seed + epoch)
    order = torch.randperm(len(x), generator=generator)
    for chosen in order.split(options.batch_size):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x[chosen]), y[chosen])
        loss.backward()
        optimizer.step()
        total += loss.item() * len(chosen)
    with torch.no_grad():
        correct = int((net(x_test).argmax(1) == y_test).sum())
    loss = total / len(x)
    rows.append(f"{epoch},{loss},{correct},{len(x_test)},{time.time() - begin}")
parts = [None] * size
dist.all_gather_object(parts, net.state_dict())
if rank == 0:
    print(*rows, sep="\n")
    (options.out / "metrics.csv").write_text("\n".join(rows) + "\n")
    state = {
        "first.weight": torch.cat([part["w1"] for part in parts]),
        "first.bias": torch.cat([part["b1"] for part in parts]),
        "second.weight": torch.cat([part["w2"] for part in parts], dim=1),
        "second.bias": parts[0]["b2"],
    }
    torch.save(state, options.out / "model.pth")
dist.barrier()
dist.destroy_process_group()
