"""Train MNIST with DDP, evaluate on all ranks: what somebody else wrote."""

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


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", default="data/mnist")
    parser.add_argument("--out", default="runs/05_ddp_inference")
    parser.add_argument("--backend", default="gloo")
    return parser.parse_args()


def main():
    args = parse()
    dist.init_process_group(args.backend)
    rank, size = dist.get_rank(), dist.get_world_size()
    data, held_out = MNIST(args.data, train=True), MNIST(args.data, train=False)
    x, y = data.data.flatten(1).float() / 255, data.targets
    x_test = held_out.data.flatten(1).float().div(255).tensor_split(size)[rank]
    y_test = held_out.targets.tensor_split(size)[rank]
    torch.manual_seed(args.seed)
    net = MLP(args.hidden)
    ddp = torch.nn.parallel.DistributedDataParallel(net)
    sgd = torch.optim.SGD(ddp.parameters(), args.lr)
    share = args.batch_size // size
    history = []
    for epoch in range(1, args.epochs + 1):
        begin = time.time()
        mine = order(len(x), args.seed, epoch)[rank::size]
        # loss and images of training, hits and images of the test
        total = torch.zeros(4)
        ddp.train()
        for i in range(0, len(mine), share):
            batch = mine[i : i + share]
            loss = F.cross_entropy(ddp(x[batch]), y[batch])
            sgd.zero_grad()
            loss.backward()
            sgd.step()
            total[:2] += torch.tensor([loss.item() * len(batch), len(batch)])
        net.eval()
        with torch.inference_mode():
            total[2] = (net(x_test).argmax(1) == y_test).sum()
        total[3] = len(y_test)
        dist.all_reduce(total)
        loss_sum, count, hits, tested = total.tolist()
        seconds = time.time() - begin
        history.append([epoch, loss_sum / count, int(hits), int(tested), seconds])
        if rank == 0:
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
