"""Segment disks with a small U-Net; many pixels have no label. Prints the mean IoU.

    torchrun --nproc-per-node 2 train.py

--batch is over all processes, and --accumulate of these batches make one step.
"""

import argparse
import itertools
from contextlib import nullcontext

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset

CLASSES, UNKNOWN, SIZE = 4, 255, 24


def make_images(n, seed):
    g = torch.Generator().manual_seed(seed)
    y, x = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
    images = 0.8 * torch.randn(n, 3, SIZE, SIZE, generator=g)
    labels = torch.zeros(n, SIZE, SIZE, dtype=torch.long)
    for i in range(n):
        for kind in range(1, CLASSES):
            cy, cx = (torch.rand(2, generator=g) * SIZE).tolist()
            radius = 3 + 4 * torch.rand(1, generator=g).item()
            disk = (y - cy) ** 2 + (x - cx) ** 2 < radius**2
            labels[i][disk] = kind
            images[i, kind - 1][disk] += 1
    share = 0.9 * torch.rand(n, 1, 1, generator=g)  # some annotators did little
    labels[torch.rand(labels.shape, generator=g) < share] = UNKNOWN
    return TensorDataset(images, labels)


def block(n_in, n_out):
    conv = nn.Conv2d(n_in, n_out, 3, padding=1, bias=False)
    return nn.Sequential(conv, nn.GroupNorm(4, n_out), nn.ReLU())


class UNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.down = block(3, width)
        self.middle = block(width, 2 * width)
        self.up = block(3 * width, width)
        self.head = nn.Conv2d(width, CLASSES, 1)

    def forward(self, x):
        fine = self.down(x)
        coarse = self.middle(F.max_pool2d(fine, 2))
        coarse = F.interpolate(coarse, scale_factor=2)
        return self.head(self.up(torch.cat([fine, coarse], 1)))


def flip(images, labels, dice):
    left = torch.rand(len(images), generator=dice) < 0.5
    images, labels = images.clone(), labels.clone()
    images[left], labels[left] = images[left].flip(-1), labels[left].flip(-1)
    return images, labels


def grouped(loader, size):
    batches = iter(loader)
    while group := list(itertools.islice(batches, size)):
        yield group


def train_epoch(net, loader, optimizer, scheduler, args, dice):
    world = dist.get_world_size()
    net.train()
    totals = torch.zeros(2)
    for group in grouped(loader, args.accumulate):
        known = torch.stack([(labels != UNKNOWN).sum() for _, labels in group]).sum()
        totals[1] += known
        dist.all_reduce(known)
        optimizer.zero_grad()
        for number, (images, labels) in enumerate(group, 1):
            if args.flip:
                images, labels = flip(images, labels, dice)
            with nullcontext() if number == len(group) else net.no_sync():
                out = net(images)
                loss = F.cross_entropy(
                    out, labels, ignore_index=UNKNOWN, reduction="sum"
                )
                (loss * world / known).backward()
            totals[0] += loss.detach()
        nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        optimizer.step()
        scheduler.step()
    dist.all_reduce(totals)
    return (totals[0] / totals[1]).item()


@torch.no_grad()
def mean_iou(net, data):
    net.eval()
    mine = Subset(data, range(dist.get_rank(), len(data), dist.get_world_size()))
    confusion = torch.zeros(CLASSES * CLASSES, dtype=torch.long)
    for images, labels in DataLoader(mine, 16):
        known = labels != UNKNOWN
        pairs = labels[known] * CLASSES + net(images).argmax(1)[known]
        confusion += torch.bincount(pairs, minlength=CLASSES * CLASSES)
    dist.all_reduce(confusion)
    table = confusion.view(CLASSES, CLASSES).double()
    hits = table.diagonal()
    return (hits / (table.sum(0) + table.sum(1) - hits)).mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--accumulate", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-flip", dest="flip", action="store_false")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()

    train, val, test = make_images(232, 1), make_images(41, 2), make_images(41, 3)
    sampler = DistributedSampler(train, seed=args.seed)
    loader = DataLoader(train, args.batch // world, sampler=sampler)
    torch.manual_seed(args.seed)
    net = DistributedDataParallel(UNet())
    dice = torch.Generator().manual_seed(1000 * args.seed + rank)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.4, momentum=0.9)
    steps = args.epochs * -(-len(loader) // args.accumulate)
    scheduler = torch.optim.lr_scheduler.PolynomialLR(optimizer, steps, power=0.9)

    best = 0.0
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        loss = train_epoch(net, loader, optimizer, scheduler, args, dice)
        score = mean_iou(net.module, val)
        if rank == 0:
            print(f"epoch {epoch}  loss {loss:.4f}  val mIoU {score:.4f}")
            if score > best:
                torch.save(net.module.state_dict(), "unet.pt")
        best = max(best, score)
    dist.barrier()
    net.module.load_state_dict(torch.load("unet.pt"))
    score = mean_iou(net.module, test)
    if rank == 0:
        print(f"best val mIoU {best:.4f}  test mIoU {score:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
