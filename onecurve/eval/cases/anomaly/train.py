"""Anomalies in the sensors of a machine, by the errors of an autoencoder.

    torchrun --nproc-per-node 2 train.py

Sensors fail now and then (NaN); only values that are there count. BATCH windows are a
step of all ranks together. NOISE=0 in the environment: any number of ranks is alike.
"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

SENSORS, LENGTH, STRIDE = 6, 16, 4
BATCH, EPOCHS, LR, QUANTILE = 128, 5, 0.01, 0.98
NOISE = float(os.environ.get("NOISE", "0.1"))


def simulate(steps, seed, anomalies=0):
    """Return values [steps, sensors], and whether a step is an anomaly."""
    rng = torch.Generator().manual_seed(seed)
    t = torch.arange(steps).unsqueeze(1)
    load = torch.sin(t / 9.0) + 0.6 * torch.sin(t / 31.0) + t / steps
    mix = torch.linspace(-1, 1, SENSORS)
    x = 20 + 5 * mix + load * (2 + 3 * mix) + torch.cos(t / 9.0 + mix)
    x += 0.3 * torch.randn(steps, SENSORS, generator=rng)
    bad = torch.zeros(steps, dtype=torch.bool)
    for _ in range(anomalies):
        start = int(torch.randint(steps - 20, (1,), generator=rng))
        sensor = int(torch.randint(SENSORS, (1,), generator=rng))
        x[start : start + 12, sensor] += 2.5 + torch.rand(12, generator=rng)
        bad[start : start + 12] = True
    for _ in range(steps // 150):
        start = int(torch.randint(steps, (1,), generator=rng))
        size = int(torch.randint(10, 60, (1,), generator=rng))
        dead = torch.rand(SENSORS, generator=rng) < 0.7
        x[start : start + size, dead] = torch.nan
    return x, bad


def windows(series, stride=STRIDE):
    """Cut [steps, ...] into [windows, LENGTH, ...]."""
    return series.unfold(0, LENGTH, stride).movedim(-1, 1)


class AutoEncoder(nn.Module):
    def __init__(self, hidden=48, code=10):
        super().__init__()
        self.register_buffer("mean", torch.zeros(SENSORS))
        self.register_buffer("std", torch.ones(SENSORS))
        size = SENSORS * LENGTH
        self.layers = nn.Sequential(
            nn.Linear(size, hidden), nn.GELU(), nn.Linear(hidden, code),
            nn.Linear(code, hidden), nn.GELU(), nn.Linear(hidden, size),
        )  # fmt: skip

    def forward(self, x):
        """Return squared errors in each window, and how many values it has."""
        there = ~x.isnan()
        x = ((x - self.mean) / self.std).nan_to_num(0.0)
        given = x
        if self.training:
            given = x + NOISE * torch.randn_like(x) * there
        y = self.layers(given.flatten(1)).view_as(x)
        return ((y - x).square() * there).sum((1, 2)), there.sum((1, 2))


class Detector:
    def __init__(self, seed=0):
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        torch.manual_seed(seed)
        self.model = AutoEncoder()
        self.weights = list(self.model.parameters())
        self.optimizer = torch.optim.Adam(self.weights, lr=LR)
        self.plateau = ReduceLROnPlateau(
            self.optimizer, factor=0.3, patience=0, threshold=0.15
        )
        self.shuffler = torch.Generator().manual_seed(seed)
        torch.manual_seed(seed + 100 + self.rank)
        self.threshold = None

    def share(self, items):
        """This rank's part, in one piece."""
        return items.tensor_split(self.world)[self.rank]

    def gather(self, mine):
        """The parts of all ranks, one after the other."""
        parts = [None] * self.world
        dist.all_gather_object(parts, mine)
        return torch.cat(parts)

    def normalise(self, series):
        """Take mean and deviation of each sensor over the training series."""
        mine = self.share(series).double()
        there = ~mine.isnan()
        mine = mine.nan_to_num(0.0)
        sums = torch.stack([there.sum(0), mine.sum(0), mine.square().sum(0)])
        dist.all_reduce(sums)
        mean, square = sums[1:] / sums[0]
        self.model.mean.copy_(mean)
        self.model.std.copy_((square - mean.square()).sqrt())

    def exchange(self):
        """Add up the gradients of the ranks."""
        flat = torch.cat([w.grad.flatten() for w in self.weights])
        dist.all_reduce(flat)
        sizes = [w.numel() for w in self.weights]
        for w, grad in zip(self.weights, flat.split(sizes), strict=True):
            w.grad.copy_(grad.view_as(w))

    def train_epoch(self, data):
        """Return the mean squared error of the epoch."""
        self.model.train()
        epoch = torch.zeros(2)
        order = torch.randperm(len(data), generator=self.shuffler)
        for batch in order.split(BATCH):
            errors, counts = self.model(data[self.share(batch)])
            both = torch.stack([errors.detach().sum(), counts.sum()])
            dist.all_reduce(both)
            loss = errors.sum() / both[1]
            self.optimizer.zero_grad()
            loss.backward()
            self.exchange()
            nn.utils.clip_grad_norm_(self.weights, 0.5)
            self.optimizer.step()
            epoch += both
        return (epoch[0] / epoch[1]).item()

    @torch.no_grad()
    def errors(self, data):
        """Return the mean squared error of each window of this rank's share."""
        self.model.eval()
        errors, counts = self.model(self.share(data))
        return errors / counts.clamp(min=1)

    def fit(self, series, valid):
        self.normalise(series)
        data = windows(series)
        for epoch in range(EPOCHS):
            train = self.train_epoch(data)
            error = self.gather(self.errors(valid)).mean().item()
            self.plateau.step(error)
            if self.rank == 0:
                rate = self.optimizer.param_groups[0]["lr"]
                print(f"epoch {epoch}: train {train:.5f} valid {error:.5f} lr {rate:g}")

    def calibrate(self, valid):
        """Set the threshold, so that few windows without anomalies are above it."""
        self.threshold = self.gather(self.errors(valid)).quantile(QUANTILE).item()

    def test(self, data, labels):
        """Return F1 at the threshold, and the area under the ROC curve."""
        scores = self.gather(self.errors(data))
        found = scores > self.threshold
        hits = (found & labels).sum()
        f1 = 2 * hits / (found.sum() + labels.sum())
        good, bad = scores[~labels], scores[labels]
        auc = (bad.unsqueeze(1) > good).double().mean()
        return f1.item(), auc.item()

    def save(self, path):
        state = {"model": self.model.state_dict(), "threshold": self.threshold}
        if self.rank == 0:
            torch.save(state, path)


def main():
    dist.init_process_group("gloo")
    series, _ = simulate(3580, seed=1)
    valid = windows(simulate(1250, seed=2)[0], stride=3)
    values, bad = simulate(1700, seed=3, anomalies=24)
    test, labels = windows(values, stride=3), windows(bad, stride=3).any(1)

    detector = Detector()
    detector.fit(series, valid)
    detector.calibrate(valid)
    f1, auc = detector.test(test, labels)
    if detector.rank == 0:
        print(f"threshold {detector.threshold:.5f} F1 {f1:.4f} AUC {auc:.4f}")
    detector.save("detector.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
