"""The density of small pictures, by a normalizing flow of affine couplings.

    torchrun --nproc-per-node 2 train.py

The activation norms are set by the first batch, as in Glow. --batch-size is that of
all processes. Each process adds its own noise to the pixels of its pictures.
"""

import argparse
import math

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

SIDE, LEVELS = 4, 32
DIM = SIDE * SIDE


def make_pictures(n, seed):
    """A bright spot on a slope, in whole numbers; some pictures are very noisy."""
    g = torch.Generator().manual_seed(seed)
    place = torch.arange(SIDE, dtype=torch.get_default_dtype())
    y, x = (SIDE * torch.rand(2, n, 1, generator=g)).unbind(0)
    down, across = torch.exp(-((place - y) ** 2)), torch.exp(-((place - x) ** 2))
    spot = down[:, :, None] * across[:, None, :]
    slope = place[None, :, None] * torch.rand(n, 1, 1, generator=g) / SIDE
    bad = (torch.rand(n, 1, 1, generator=g) < 0.02) * 0.5
    noise = (0.03 + bad) * torch.randn(n, SIDE, SIDE, generator=g)
    picture = (0.6 * spot + 0.3 * slope + 0.1 + noise).clamp(0, 1)
    return (picture * (LEVELS - 1)).round().flatten(1)


def dequantize(pixels, generator=None):
    noise = torch.rand(pixels.shape, generator=generator)
    return (pixels + noise) / LEVELS - 0.5


class ActNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(DIM))
        self.log_scale = nn.Parameter(torch.zeros(DIM))
        self.register_buffer("ready", torch.zeros((), dtype=torch.long))

    @torch.no_grad()
    def initialize(self, x):
        """Zero mean and unit variance for the first batch."""
        x = x.double()
        sums = torch.stack([torch.ones_like(x), x, x * x]).sum(1)
        dist.all_reduce(sums)
        mean, square = sums[1:] / sums[0]
        self.shift.copy_(-mean)
        self.log_scale.copy_(-0.5 * (square - mean * mean + 1e-6).log())
        self.ready.fill_(1)

    def forward(self, x):
        if self.training and not self.ready:
            self.initialize(x)
        return (x + self.shift) * self.log_scale.exp(), self.log_scale.sum()


class Coupling(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(DIM // 2, hidden), nn.ReLU(), nn.Linear(hidden, DIM)
        )
        nn.init.zeros_(self.net[-1].weight)
        nn.init.zeros_(self.net[-1].bias)

    def forward(self, x):
        keep, change = x.chunk(2, dim=1)
        log_scale, shift = self.net(keep).chunk(2, dim=1)
        log_scale = F.logsigmoid(log_scale + 2)
        change = (change + shift) * log_scale.exp()
        return torch.cat([keep, change], dim=1), log_scale.sum(1)


class Flow(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.norms = nn.ModuleList(ActNorm() for _ in range(depth))
        self.couplings = nn.ModuleList(Coupling() for _ in range(depth))
        orders = torch.stack([torch.randperm(DIM) for _ in range(depth)])
        self.register_buffer("orders", orders)

    def forward(self, x):
        """Bits per dimension, of each picture."""
        log_det = 0
        for i, order in enumerate(self.orders):
            x, by_norm = self.norms[i](x[:, order])
            x, by_coupling = self.couplings[i](x)
            log_det = log_det + by_norm + by_coupling
        log_prior = -0.5 * (x * x + math.log(2 * math.pi)).sum(1)
        return math.log2(LEVELS) - (log_prior + log_det) / (DIM * math.log(2))


def mean_over_ranks(value):
    value = value.detach().clone()
    dist.all_reduce(value)
    return (value / dist.get_world_size()).item()


@torch.no_grad()
def evaluate(flow, test):
    """Bits per dimension of the test pictures, whose noise is always the same."""
    flow.eval()
    batches = test.split(40)
    mine = batches[dist.get_rank() :: dist.get_world_size()]
    sums = torch.zeros(2)
    for x in mine:
        sums += torch.stack([flow(x).sum(), torch.tensor(len(x))])
    dist.all_reduce(sums)
    return (sums[0] / sums[1]).item()


def get_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--lr", type=float, default=1e-2)
    parser.add_argument("--depth", type=int, default=6)
    parser.add_argument("--decay", type=float, default=0.9, help="of the average")
    parser.add_argument("--spike", type=float, default=0.15, help="bits too many")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def main():
    args = get_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()

    train = TensorDataset(make_pictures(1536, seed=1))
    test = dequantize(make_pictures(353, seed=2), torch.Generator().manual_seed(3))
    sampler = DistributedSampler(train, seed=args.seed, drop_last=True)
    per_rank = args.batch_size // world
    loader = DataLoader(train, per_rank, sampler=sampler, drop_last=True)

    torch.manual_seed(args.seed)
    model = DistributedDataParallel(Flow(args.depth))
    average = AveragedModel(model.module, multi_avg_fn=get_ema_multi_avg_fn(args.decay))
    optimizer = torch.optim.Adam(model.parameters(), args.lr, eps=1e-5)
    steps = args.epochs * (len(train) // args.batch_size)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr, steps)
    torch.manual_seed(args.seed + 1 + rank)

    usual = math.inf
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        model.train()
        total, skipped = torch.zeros(()), 0
        for (pixels,) in loader:
            loss = model(dequantize(pixels)).mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            now = mean_over_ranks(loss)
            if now < usual + args.spike:
                optimizer.step()
            else:
                skipped += 1
            schedule.step()
            usual = now if usual == math.inf else 0.7 * usual + 0.3 * now
            average.update_parameters(model.module)
            total += loss.detach()
        bits = mean_over_ranks(total) / len(loader)
        test_bits = evaluate(average, test)
        if rank == 0:
            print(
                f"epoch {epoch}  lr {schedule.get_last_lr()[0]:.5f}  "
                f"train {bits:.4f}  test {test_bits:.4f} bits/dim  skipped {skipped}"
            )
    if rank == 0:
        state = {"flow": average.module.state_dict(), "args": vars(args)}
        torch.save(state, "flow.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
