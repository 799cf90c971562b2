"""DDPM on 2-D points: predict the noise, keep an EMA of the weights, accumulate."""

import argparse
import contextlib
import copy
import math
import pathlib

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

T = 100  # diffusion steps
ALPHA_BAR = torch.cumprod(1 - torch.linspace(1e-4, 0.05, T), dim=0)


class Denoiser(nn.Module):
    def __init__(self, hidden=64, n_freq=8):
        super().__init__()
        self.register_buffer("freqs", torch.arange(1, n_freq + 1) * math.pi / T)
        self.inp, self.mid = (
            nn.Linear(2 + 2 * n_freq, hidden),
            nn.Linear(hidden, hidden),
        )
        self.out = nn.Linear(hidden, 2)

    def forward(self, x, t):
        angle = t[:, None] * self.freqs
        h = self.inp(torch.cat([x, angle.sin(), angle.cos()], dim=1))
        return self.out(F.silu(self.mid(F.silu(h))))


class EMA:
    """Exponential moving average of a model's weights."""

    def __init__(self, model, decay):
        self.decay = decay
        self.model = copy.deepcopy(model).eval().requires_grad_(False)

    @torch.no_grad()
    def update(self, model):
        for mean, p in zip(self.model.parameters(), model.parameters(), strict=True):
            mean.lerp_(p, 1 - self.decay)


def spiral(n, seed):
    g = torch.Generator().manual_seed(seed)
    r = torch.rand(n, 1, generator=g) * 3 + 0.2
    points = torch.cat([r * torch.cos(3 * r), r * torch.sin(3 * r)], dim=1)
    return points + 0.05 * torch.randn(n, 2, generator=g)


def add_noise(x, t, eps):
    a = ALPHA_BAR.to(x.dtype)[t][:, None]
    return a.sqrt() * x + (1 - a).sqrt() * eps


def diffusion_loss(model, x):
    t = torch.randint(0, T, (len(x),))
    eps = torch.randn_like(x)
    return (model(add_noise(x, t, eps), t) - eps).square().mean()


@torch.no_grad()
def validate(model, x, rank, world):
    """MSE of the predicted noise over the whole of x, each rank doing its part."""
    g = torch.Generator().manual_seed(0)  # the same noise in every validation
    t = torch.randint(0, T, (len(x),), generator=g)
    eps = torch.randn(x.shape, generator=g)
    mine = slice(rank, None, world)
    x, t, eps = x[mine], t[mine], eps[mine]
    err = (model(add_noise(x, t, eps), t) - eps).square().sum()
    total = torch.stack([err, torch.tensor(eps.numel()).to(err)])
    dist.all_reduce(total)
    return (total[0] / total[1]).item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=4)
    ap.add_argument("--batch", type=int, default=96, help="samples per update")
    ap.add_argument("--accum", type=int, default=4)
    ap.add_argument("--out", type=pathlib.Path, default="runs/diffusion")
    args = ap.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1000 + rank)  # each rank draws noise of its own

    train = spiral(768, seed=1)
    val = spiral(131, seed=2)
    mean, std = train.mean(dim=0), train.std(dim=0)
    train, val = (train - mean) / std, (val - mean) / std
    dataset = TensorDataset(train)
    sampler = DistributedSampler(dataset, seed=3, drop_last=True)
    micro = args.batch // (args.accum * world)
    loader = DataLoader(dataset, micro, sampler=sampler, drop_last=True)

    net = Denoiser()
    model = DistributedDataParallel(net)  # from here on all have rank 0's weights
    ema = EMA(net, decay=0.9)
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    usable = len(loader) - len(loader) % args.accum

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        running = torch.zeros(())
        for i, (x,) in zip(range(usable), loader, strict=False):
            update = (i + 1) % args.accum == 0
            with contextlib.nullcontext() if update else model.no_sync():
                loss = diffusion_loss(model, x) / args.accum
                loss.backward()
            running += loss.detach()
            if update:
                opt.step()
                opt.zero_grad()
                ema.update(net)
        running = running * args.accum / usable
        dist.all_reduce(running)
        running /= world
        mse = validate(ema.model, val, rank, world)
        if rank == 0:
            print(f"[{epoch}] train {running.item():.4f}  val (ema) {mse:.4f}")
    if rank == 0:
        args.out.mkdir(parents=True, exist_ok=True)
        torch.save(ema.model.state_dict(), args.out / "ema.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
