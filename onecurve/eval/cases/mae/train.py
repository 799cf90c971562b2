#!/usr/bin/env python
"""MAE pretraining of a small ViT, then a linear probe of its frozen encoder."""
import argparse
import contextlib
import math
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset, random_split
from torchvision.transforms.v2 import functional as TF

CLASSES, SIZE, PATCH = 6, 24, 4
TOKENS, PIXELS = (SIZE // PATCH) ** 2, 3 * PATCH**2


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--epochs", type=int, default=12)
    p.add_argument("--warmup-epochs", type=float, default=1.0)
    p.add_argument("--batch-size", type=int, default=16, help="images a rank and micro step")
    p.add_argument("--accum", type=int, default=2, help="micro steps an update")
    p.add_argument("--blr", type=float, default=2e-2, help="learning rate of 256 images")
    p.add_argument("--layer-decay", type=float, default=0.8)
    p.add_argument("--weight-decay", type=float, default=0.05)
    p.add_argument("--clip-grad", type=float, default=0.2)
    p.add_argument("--mask-ratio", type=float, default=0.75)
    p.add_argument("--probe-epochs", type=int, default=15)
    p.add_argument("--checkpoint", default="mae.pth")
    return p.parse_args()


def make_images(count, seed):
    """Colour gratings; the class is the angle, frequency, phase and colour are not."""
    g = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (count,), generator=g)
    angle = math.pi * (labels + 0.3 * torch.rand(count, generator=g)) / CLASSES
    freq, phase = 0.1 + 0.1 * torch.rand(2, count, generator=g)
    y, x = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
    wave = angle.cos()[:, None, None] * x + angle.sin()[:, None, None] * y
    wave = torch.sin(freq[:, None, None] * wave + 12 * phase[:, None, None])
    images = wave[:, None] * torch.randn(count, 3, 1, 1, generator=g)
    return TensorDataset(images + 0.3 * torch.randn(images.shape, generator=g), labels)


def patchify(images):
    x = images.unfold(2, PATCH, PATCH).unfold(3, PATCH, PATCH)
    return x.permute(0, 2, 3, 1, 4, 5).reshape(len(images), TOKENS, PIXELS)


def block(dim):
    kwargs = {"activation": "gelu", "batch_first": True, "norm_first": True}
    return nn.TransformerEncoderLayer(dim, 4, 2 * dim, dropout=0.0, **kwargs)


class Encoder(nn.Module):
    def __init__(self, dim=48, depth=3):
        super().__init__()
        self.embed = nn.Linear(PIXELS, dim)
        self.pos = nn.Parameter(0.02 * torch.randn(1, TOKENS, dim))
        self.blocks = nn.ModuleList(block(dim) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)

    def forward(self, images, keep=None):
        x = self.embed(patchify(images)) + self.pos
        if keep is not None:
            x = x.gather(1, keep[..., None].expand(-1, -1, x.shape[2]))
        for layer in self.blocks:
            x = layer(x)
        return self.norm(x)


class MAE(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.encoder = Encoder()
        self.bridge = nn.Linear(self.encoder.pos.shape[2], dim)
        self.mask_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos = nn.Parameter(0.02 * torch.randn(1, TOKENS, dim))
        self.decoder = block(dim)
        self.head = nn.Linear(dim, PIXELS)

    def forward(self, images, scores, ratio):
        """Mean squared error of the hidden patches, those of the highest scores."""
        seen = TOKENS - int(ratio * TOKENS)
        order = scores.argsort(1)
        latent = self.bridge(self.encoder(images, order[:, :seen]))
        hidden = self.mask_token.expand(len(images), TOKENS - seen, -1)
        x = torch.cat([latent, hidden], 1)
        x = x.gather(1, order.argsort(1)[..., None].expand_as(x))
        x = self.head(self.decoder(x + self.pos))
        error = (x - patchify(images)).square().mean(2)
        return error.gather(1, order[:, seen:]).mean()


def param_groups(model, args):
    """Groups with a learning rate scale, smaller the nearer a layer is to the pixels."""
    depth, groups = len(model.encoder.blocks), {}
    for name, p in model.named_parameters():
        layer = depth + 1
        if name.startswith("encoder.blocks."):
            layer = int(name.split(".")[2]) + 1
        elif name.startswith(("encoder.embed", "encoder.pos")):
            layer = 0
        decay = args.weight_decay if p.ndim == 2 else 0.0
        new = {"params": [], "weight_decay": decay}
        new["lr_scale"] = args.layer_decay ** (depth + 1 - layer)
        groups.setdefault((layer, decay), new)["params"].append(p)
    return list(groups.values())


def set_lr(optimizer, epoch, lr, args):
    """Warm-up and half a cosine, by fractions of an epoch."""
    done = (epoch - args.warmup_epochs) / (args.epochs - args.warmup_epochs)
    factor = 0.5 * (1 + math.cos(math.pi * done))
    if epoch < args.warmup_epochs:
        factor = epoch / args.warmup_epochs
    for group in optimizer.param_groups:
        group["lr"] = lr * factor * group["lr_scale"]


def all_mean(total, count, device):
    pair = torch.tensor([float(total), float(count)], dtype=torch.float64, device=device)
    dist.all_reduce(pair)
    return (pair[0] / pair[1]).item()


def train_one_epoch(model, loader, optimizer, epoch, lr, masks, device, args):
    model.train()
    loader.sampler.set_epoch(epoch)
    total = count = 0
    for i, (images, _) in enumerate(loader):
        first = i - i % args.accum
        micro_steps = min(args.accum, len(loader) - first)  # the last may be fewer
        last = i == first + micro_steps - 1
        if i == first:
            set_lr(optimizer, epoch + i / len(loader), lr, args)
        images = images.to(device)
        if torch.rand((), generator=masks) < 0.5:
            images = TF.vertical_flip(TF.horizontal_flip(images))  # keeps the angle
        scores = torch.rand(len(images), TOKENS, generator=masks).to(device)
        with contextlib.nullcontext() if last else model.no_sync():
            loss = model(images, scores, args.mask_ratio)
            (loss / micro_steps).backward()
        if last:
            nn.utils.clip_grad_norm_(model.parameters(), args.clip_grad)
            optimizer.step()
            optimizer.zero_grad()
        total += loss.item() * len(images)
        count += len(images)
    return all_mean(total, count, device)


@torch.no_grad()
def validate(mae, val, rank, world, device, args):
    """Reconstruction error of the validation images, each with a mask of its own."""
    mae.eval()
    scores = torch.rand(len(val), TOKENS, generator=torch.Generator().manual_seed(1))
    mine = range(rank, len(val), world)
    images = torch.stack([val[i][0] for i in mine])
    loss = mae(images.to(device), scores[mine].to(device), args.mask_ratio)
    return all_mean(loss.item() * len(mine), len(mine), device)


@torch.no_grad()
def extract(encoder, dataset, rank, world, device):
    """Mean tokens and labels of the rank's share of the images."""
    encoder.eval()
    mine = range(rank, len(dataset), world)
    images = torch.stack([dataset[i][0] for i in mine]).to(device)
    features = torch.cat([encoder(part).mean(1) for part in images.split(64)])
    return features, torch.stack([dataset[i][1] for i in mine]).to(device)


def gather(x, total, world):
    """Undo the split of `extract`: the rows of all ranks, in the order of the set."""
    most = math.ceil(total / world)
    padded = torch.cat([x, x[:1].expand(most - len(x), *x.shape[1:])]).contiguous()
    parts = [torch.empty_like(padded) for _ in range(world)]
    dist.all_gather(parts, padded)
    return torch.stack(parts, 1).flatten(0, 1)[:total]


def linear_probe(encoder, train, test, rank, world, device, args):
    """Top-1 of a linear classifier, which each rank trains alike on all features."""
    features, labels = extract(encoder, train, rank, world, device)
    features = gather(features, len(train), world)
    labels = gather(labels, len(train), world)

    g = torch.Generator().manual_seed(args.seed)
    linear = nn.Linear(features.shape[1], CLASSES)
    nn.init.trunc_normal_(linear.weight, std=0.01, generator=g)
    nn.init.zeros_(linear.bias)
    head = nn.Sequential(nn.BatchNorm1d(features.shape[1], affine=False), linear)
    head.to(device)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.5, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.probe_epochs)
    for _ in range(args.probe_epochs):
        for pick in torch.randperm(len(labels), generator=g).split(64):
            loss = F.cross_entropy(head(features[pick]), labels[pick])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()

    head.eval()
    features, labels = extract(encoder, test, rank, world, device)
    hits = (head(features).argmax(1) == labels).sum()
    return 100 * all_mean(hits, len(labels), device)


def main():
    args = get_args()
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29531")
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if cuda else "gloo", rank=rank, world_size=world)
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if cuda else "cpu"
    torch.manual_seed(args.seed + rank)
    masks = torch.Generator().manual_seed(args.seed + 100 + rank)

    images, split = make_images(592, args.seed), torch.Generator().manual_seed(args.seed)
    train, val = random_split(images, [480, 112], generator=split)
    sampler = DistributedSampler(train, seed=args.seed)
    loader = DataLoader(train, args.batch_size, sampler=sampler)

    mae = MAE().to(device)
    model = DistributedDataParallel(mae)
    global_batch = args.batch_size * args.accum * world
    lr = args.blr * global_batch / 256
    optimizer = torch.optim.AdamW(param_groups(mae, args), lr=lr, betas=(0.9, 0.95))
    for epoch in range(args.epochs):
        loss = train_one_epoch(model, loader, optimizer, epoch, lr, masks, device, args)
        val_loss = validate(mae, val, rank, world, device, args)
        if rank == 0:
            print(f"[{epoch}] loss {loss:.4f} val {val_loss:.4f}", flush=True)
    if rank == 0:
        state = {"model": mae.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(state | {"args": vars(args)}, args.checkpoint)
    dist.barrier()

    weights = torch.load(args.checkpoint, map_location=device)["model"].items()
    weights = {k[8:]: v for k, v in weights if k.startswith("encoder.")}
    encoder = Encoder().to(device).requires_grad_(False)
    encoder.load_state_dict(weights)
    test = make_images(301, args.seed + 1)
    top1 = linear_probe(encoder, train, test, rank, world, device, args)
    if rank == 0:
        print(f"linear probe: top-1 {top1:.2f}%")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
