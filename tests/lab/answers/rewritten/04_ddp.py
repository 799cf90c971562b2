"""Train MNIST with DDP: what somebody else wrote, who had the flags and no more."""

import argparse
import csv
import os
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torchvision.datasets import MNIST


class MLP(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.fc1 = torch.nn.Linear(784, width)
        self.fc2 = torch.nn.Linear(width, 10)

    def forward(self, x):
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


def order(count, seed, epoch):
    """The shuffled indices of all ranks, made up to a multiple of their number."""
    generator = torch.Generator().manual_seed(seed + epoch)
    indices = torch.randperm(count, generator=generator).tolist()
    return indices + indices[: -count % dist.get_world_size()]


def accuracy(net, x, y):
    net.eval()
    hits = 0
    with torch.inference_mode():
        for i in range(0, len(x), 50):
            answers = net(x[i : i + 50]).argmax(1)
            hits += (answers == y[i : i + 50]).sum().item()
    return hits


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", default="data/mnist")
    parser.add_argument("--out", default="runs/04_ddp")
    parser.add_argument("--backend", default="gloo")
    return parser.parse_args()


def main():
    args = parse()
    dist.init_process_group(args.backend)
    rank, size = dist.get_rank(), dist.get_world_size()
    data = MNIST(args.data, train=True)
    x, y = data.data.flatten(1).float() / 255, data.targets
    held_out = MNIST(args.data, train=False)
    torch.manual_seed(args.seed)
    net = MLP(args.hidden)
    ddp = torch.nn.parallel.DistributedDataParallel(net)
    sgd = torch.optim.SGD(ddp.parameters(), args.lr)
    share = args.batch_size // size
    history = []
    for epoch in range(1, args.epochs + 1):
        begin = time.time()
        mine = order(len(x), args.seed, epoch)[rank::size]
        total = torch.zeros(2)
        ddp.train()
        for i in range(0, len(mine), share):
            batch = mine[i : i + share]
            loss = F.cross_entropy(ddp(x[batch]), y[batch])
            sgd.zero_grad()
            loss.backward()
            sgd.step()
            total += torch.tensor([loss.item() * len(batch), len(batch)])
        dist.all_reduce(total)
        if rank == 0:
            hits = accuracy(
                net, held_out.data.flatten(1).float() / 255, held_out.targets
            )
            mean = (total[0] / total[1]).item()
            history.append([epoch, mean, hits, len(held_out), time.time() - begin])
            print(history[-1])
    if rank == 0:
        os.makedirs(args.out, exist_ok=True)
        torch.save(net.state_dict(), os.path.join(args.out, "model.pth"))
        with open(os.path.join(args.out, "metrics.csv"), "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["epoch", "loss", "correct", "total", "seconds"])
            writer.writerows(history)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
