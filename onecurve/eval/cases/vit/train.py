"""Train a small vision transformer: mixup, warm-up and cosine, an average of weights.

    torchrun --nproc-per-node 2 train.py

`--batch-size` is that of all processes together, so two of them take the very images of
one in each step: with `--mixup 0 --drop 0` they print its losses and accuracies. With
mixup each process mixes the images that it has.
"""

import argparse
import copy
import math
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn, optim
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler, Subset

CLASSES, SIDE, PATCH = 5, 16, 4


class Textures(Dataset):
    """Images of waves, whose direction is the class, under noise."""

    def __init__(self, size, seed):
        rng = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(CLASSES, (size,), generator=rng)
        angle = self.labels * math.pi / CLASSES
        phase = 2 * math.pi * torch.rand(size, generator=rng)
        y, x = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")
        along = x * angle.cos()[:, None, None] + y * angle.sin()[:, None, None]
        waves = torch.sin(along + phase[:, None, None])[:, None]
        self.images = waves + 1.5 * torch.randn(size, 3, SIDE, SIDE, generator=rng)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.images[index], self.labels[index]


class VisionTransformer(nn.Module):
    def __init__(self, dim=32, depth=2, heads=4, drop=0.1):
        super().__init__()
        self.patch_embed = nn.Conv2d(3, dim, PATCH, PATCH)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        # 4 x 4 patches and the class token
        self.pos_embed = nn.Parameter(torch.randn(1, 17, dim) / 50)
        layer = nn.TransformerEncoderLayer(
            dim, heads, 2 * dim, drop, "gelu", batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, CLASSES)

    def forward(self, x):
        x = self.patch_embed(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], dim=1)
        x = self.blocks(x + self.pos_embed)
        return self.head(self.norm(x[:, 0]))


class ModelEma:
    """An exponential moving average of a model's weights."""

    def __init__(self, model, decay=0.9):
        self.module = copy.deepcopy(model).eval().requires_grad_(False)
        self.decay = decay

    @torch.no_grad()
    def update(self, model):
        pairs = zip(self.module.parameters(), model.parameters(), strict=True)
        for average, weight in pairs:
            average.lerp_(weight, 1 - self.decay)


def mixup(images, labels, alpha):
    target = F.one_hot(labels, CLASSES).float()
    if alpha == 0:
        return images, target
    lam = torch.distributions.Beta(alpha, alpha).sample()
    other = torch.randperm(len(images))
    target = lam * target + (1 - lam) * target[other]
    return lam * images + (1 - lam) * images[other], target


def cosine_with_warmup(optimizer, warmup, total):
    def factor(step):
        if step < warmup:
            return (step + 1) / warmup
        return 0.5 * (1 + math.cos(math.pi * (step - warmup) / (total - warmup)))

    return optim.lr_scheduler.LambdaLR(optimizer, factor)


def train_one_epoch(model, ema, loader, optimizer, scheduler, args):
    model.train()
    total = torch.zeros(2)
    for images, labels in loader:
        images, target = mixup(images, labels, args.mixup)
        loss = F.cross_entropy(model(images), target, label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), args.clip_grad)
        optimizer.step()
        scheduler.step()
        ema.update(unwrap(model))
        total += torch.tensor([loss.item() * len(images), len(images)])
    if args.distributed:
        dist.all_reduce(total)
    return (total[0] / total[1]).item()


@torch.inference_mode()
def validate(model, loader, args):
    model.eval()
    hits = torch.zeros(2)
    for images, labels in loader:
        right = model(images).argmax(1) == labels
        hits += torch.tensor([right.sum(), len(labels)])
    if args.distributed:
        dist.all_reduce(hits)
    return 100 * (hits[0] / hits[1]).item()


def unwrap(model):
    return getattr(model, "module", model)


def main(args):
    args.distributed = "RANK" in os.environ
    args.rank, args.world_size = 0, 1
    if args.distributed:
        dist.init_process_group("gloo")
        args.rank, args.world_size = dist.get_rank(), dist.get_world_size()

    train, test = Textures(512, seed=1), Textures(203, seed=2)
    sampler = DistributedSampler(
        train, args.world_size, args.rank, seed=args.seed, drop_last=True
    )
    batch = args.batch_size // args.world_size
    loader = DataLoader(train, batch, sampler=sampler, drop_last=True)
    part = Subset(test, range(args.rank, len(test), args.world_size))
    test_loader = DataLoader(part, 64)

    # every process mixes and drops in a way of its own; the wrapper has equal weights
    torch.manual_seed(args.seed + args.rank)
    model = VisionTransformer(drop=args.drop)
    if args.distributed:
        model = DistributedDataParallel(model)
    ema = ModelEma(unwrap(model))

    optimizer = optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.05)
    updates = args.epochs * len(loader)
    scheduler = cosine_with_warmup(optimizer, updates // 10, updates)

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        loss = train_one_epoch(model, ema, loader, optimizer, scheduler, args)
        top1 = validate(ema.module, test_loader, args)
        if args.rank == 0:
            lr = scheduler.get_last_lr()[0]
            print(f"epoch {epoch}  loss {loss:.5f}  ema top1 {top1:.2f}  lr {lr:.6f}")
    if args.rank == 0:
        torch.save(ema.module.state_dict(), args.output)
    if args.distributed:
        dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--mixup", type=float, default=0.2)
    parser.add_argument("--drop", type=float, default=0.1)
    parser.add_argument("--clip-grad", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--output", default="vit_ema.pt")
    main(parser.parse_args())
