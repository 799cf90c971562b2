"""Forecast the next 6 hours of several series from the last 24, with a GRU.

    torchrun --nproc-per-node 2 train.py

What is validated, kept and tested is an exponential moving average of the weights.
"""

import argparse
import copy

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

PAST, AHEAD = 24, 6


def make_series(n=9, hours=420, seed=0):
    g = torch.Generator().manual_seed(seed)
    t = torch.arange(hours)
    level = 20 + 15 * torch.rand(n, 1, generator=g)
    swing = 2 + 8 * torch.rand(n, 1, generator=g)
    phase = 24 * torch.rand(n, 1, generator=g)
    week = 2 * torch.sin(2 * torch.pi * t / 168)
    noise = 0.8 * torch.randn(n, hours, generator=g)
    return level + swing * torch.sin(2 * torch.pi * (t + phase) / 24) + week + noise


def windows(series, first, last, stride):
    """All windows whose hours lie in [first, last)."""
    cut = series[:, first:last].unfold(1, PAST + AHEAD, stride)
    return cut.reshape(-1, PAST + AHEAD)


class Forecaster(nn.Module):
    def __init__(self, dim=24, dropout=0.1):
        super().__init__()
        self.gru = nn.GRU(1, dim, batch_first=True)
        self.drop = nn.Dropout(dropout)
        self.head = nn.Linear(dim, AHEAD)

    def forward(self, past):
        hidden, _ = self.gru(past.unsqueeze(-1))
        return past[:, -1:] + self.head(self.drop(hidden[:, -1]))


class Trainer:
    def __init__(self, args):
        self.args = args
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        series = make_series()
        past = series[:, :300]
        self.mean, self.std = past.mean(), past.std()
        scaled = (series - self.mean) / self.std
        self.train = windows(scaled, 0, 300, 3)
        self.val = windows(scaled, 300, 360, 1)
        self.test = windows(scaled, 360, 420, 1)

        torch.manual_seed(args.seed + self.rank)  # each rank has a dropout of its own
        model = Forecaster(dropout=args.dropout)
        self.model = DDP(model)  # all start with the weights of rank 0
        self.ema = copy.deepcopy(model).requires_grad_(False)
        self.optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
        self.scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(
            self.optimizer, factor=0.5, patience=0
        )

    def batches(self, epoch):
        """This rank's part of each batch, and the size of the whole batch."""
        g = torch.Generator().manual_seed(1000 * self.args.seed + epoch)
        order = torch.randperm(len(self.train), generator=g)
        for chosen in order.split(self.args.batch_size):
            yield self.train[chosen[self.rank :: self.world]], len(chosen)

    def train_epoch(self, epoch):
        self.model.train()
        total = torch.zeros(2)
        for window, size in self.batches(epoch):
            out = self.model(window[:, :PAST])
            loss = (out - window[:, PAST:]).square().mean(1).sum()
            self.optimizer.zero_grad()
            # Parts may be unequal: divide by all, and undo DDP's division.
            (loss * self.world / size).backward()
            self.optimizer.step()
            self.update_average()
            total += torch.stack([loss.detach(), torch.tensor(len(window))])
        dist.all_reduce(total)
        return (total[0] / total[1]).item()

    @torch.no_grad()
    def update_average(self):
        pairs = zip(self.ema.parameters(), self.model.module.parameters(), strict=True)
        for average, new in pairs:
            average.lerp_(new, 1 - self.args.decay)

    @torch.no_grad()
    def errors(self, data):
        """Squares and absolute values of this rank's errors, added up, and a count."""
        self.ema.eval()
        sums = torch.zeros(3, dtype=torch.float64)
        mine = data.tensor_split(self.world)[self.rank]
        for window in mine.split(64):
            error = (self.ema(window[:, :PAST]) - window[:, PAST:]) * self.std
            sums[0] += error.square().sum()
            sums[1] += error.abs().sum()
            sums[2] += error.numel()
        return sums

    def fit(self):
        best, bad = float("inf"), 0
        for epoch in range(self.args.epochs):
            loss = self.train_epoch(epoch)
            sums = self.errors(self.val)
            dist.all_reduce(sums)
            rmse, mae = (sums[0] / sums[2]).sqrt().item(), (sums[1] / sums[2]).item()
            self.scheduler.step(rmse)
            if self.rank == 0:
                print(f"{epoch}: loss {loss:.5f}, RMSE {rmse:.4f}, MAE {mae:.4f}")
            bad = 0 if rmse < best else bad + 1
            if rmse < best:
                best = rmse
                if self.rank == 0:
                    torch.save(self.ema.state_dict(), "forecaster.pt")
            if bad > self.args.patience:
                break
        dist.barrier()
        self.ema.load_state_dict(torch.load("forecaster.pt"))
        sums = self.errors(self.test)
        dist.all_reduce(sums)
        if self.rank == 0:
            rmse, mae = (sums[0] / sums[2]).sqrt().item(), (sums[1] / sums[2]).item()
            print(f"test RMSE {rmse:.4f}, MAE {mae:.4f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--decay", type=float, default=0.95)
    parser.add_argument("--patience", type=int, default=6)
    parser.add_argument("--seed", type=int, default=5)
    dist.init_process_group("gloo")
    Trainer(parser.parse_args()).fit()
    dist.destroy_process_group()
