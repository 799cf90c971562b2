# Cox regression with a small network (as in DeepSurv), on several processes.
#
#     torchrun --nproc-per-node 2 train.py
#
# The covariates are large, so each process reads the rows of its own patients only.
# Times and events are small, and every process has all of them. A step takes --batch
# patients of all processes; the risk sets are those of the whole batch.

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=6)
parser.add_argument("--batch", type=int, default=96)
parser.add_argument("--lr", type=float, default=0.2)
parser.add_argument("--dropout", type=float, default=0.1)
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
COVARIATES = 10


def cohort(n, seed):
    """Patients of several hospitals, one hospital after the other."""
    g = torch.Generator().manual_seed(seed)
    hospital = torch.arange(n) * 6 // n
    x = torch.randn(n, COVARIATES, generator=g)
    risk = x[:, 0] - 0.8 * x[:, 1] + x[:, 2] * x[:, 3] + 0.5 * x[:, 4].abs()
    time = torch.empty(n).exponential_(generator=g) / risk.exp()
    limit = 2 * torch.empty(n).exponential_(generator=g)  # lost to follow-up
    units = torch.logspace(-1, 2, COVARIATES)
    x = (x + 0.3 * hospital[:, None] + 5) * units
    return x, torch.minimum(time, limit), (time <= limit).to(x.dtype)


class Standardize(nn.Module):
    """Bring the covariates, whose units differ a lot, to mean 0 and variance 1."""

    def __init__(self, mean, std):
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)

    def forward(self, x):
        return (x - self.mean) / self.std


def share(n):
    """Return first and last + 1 of this process's patients."""
    return n * RANK // WORLD, n * (RANK + 1) // WORLD


def cox(scores, times, events):
    """Minus the log of the partial likelihood, added up over the events."""
    order = times.argsort(descending=True)
    s = scores[order]
    return ((s.logcumsumexp(0) - s) * events[order]).sum()


def concordance(scores, times, events):
    """The part of the pairs whose order is known that the scores put in that order."""
    pairs = (times[:, None] < times[None, :]) & (events[:, None] == 1)
    ahead = scores[:, None] - scores[None, :]
    right = (ahead > 0).double() + 0.5 * (ahead == 0).double()
    return ((right * pairs).sum() / pairs.sum()).item()


def breslow(scores, times, events):
    """The cumulative baseline hazard: the times, and what it is at each of them."""
    order = times.argsort(descending=True)
    jumps = events[order] / scores[order].exp().cumsum(0)
    return times[order].flip(0), jumps.flip(0).cumsum(0)


def everyone(scores, here, n):
    """Put the scores of all processes in one tensor; here: where the own ones go."""
    both = torch.zeros(n)
    both[here] = scores.detach()
    dist.all_reduce(both)
    return both


dist.init_process_group("gloo")
x, times, events = cohort(768, seed=1)
first, last = share(len(x))
x = x[first:last].clone()
val_x, val_times, val_events = cohort(205, seed=2)
val_first, val_last = share(len(val_x))
val_x = val_x[val_first:val_last].clone()
val_here = torch.arange(val_first, val_last)

moments = torch.stack([torch.ones_like(x), x, x * x]).double().sum(1)
dist.all_reduce(moments)
mean, square = moments[1:] / moments[0]
std = (square - mean * mean).sqrt()

torch.manual_seed(args.seed)
net = nn.Sequential(
    Standardize(mean.to(x.dtype), std.to(x.dtype)),
    nn.Linear(COVARIATES, 32),
    nn.SiLU(),
    nn.Dropout(args.dropout),
    nn.Linear(32, 16),
    nn.SiLU(),
    nn.Linear(16, 1, bias=False),
)
torch.manual_seed(args.seed + 1 + RANK)  # for dropout
optimizer = torch.optim.SGD(net.parameters(), args.lr, 0.9, weight_decay=1e-3)
plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.3, patience=0)

for epoch in range(args.epochs):
    net.train()
    g = torch.Generator().manual_seed(1000 * args.seed + epoch)
    for batch in torch.randperm(len(times), generator=g).split(args.batch):
        here = ((batch >= first) & (batch < last)).nonzero().flatten()
        own = net(x[batch[here] - first]).squeeze(1)
        # The scores of others are constants here.
        scores = everyone(own, here, len(batch)).index_put((here,), own)
        loss = cox(scores, times[batch], events[batch]) / events[batch].sum()
        optimizer.zero_grad()
        loss.backward()
        for p in net.parameters():
            dist.all_reduce(p.grad)
        nn.utils.clip_grad_norm_(net.parameters(), 2.0)
        optimizer.step()

    net.eval()
    with torch.no_grad():
        own = net(val_x).squeeze(1)
    val = everyone(own, val_here, len(val_times))
    val_loss = (cox(val, val_times, val_events) / val_events.sum()).item()
    c_index = concordance(val, val_times, val_events)
    lr = optimizer.param_groups[0]["lr"]
    plateau.step(val_loss)
    if RANK == 0:
        print(f"epoch {epoch}: lr {lr:.4f}, loss {val_loss:.4f}, C {c_index:.4f}")

# Calibration: the events that the model expects until each patient's last visit.
with torch.no_grad():
    own = net(x).squeeze(1)
fitted = everyone(own, torch.arange(first, last), len(times))
steps, hazard = breslow(fitted, times, events)
at = torch.searchsorted(steps, val_times, right=True)
cumulative = torch.cat([torch.zeros(1), hazard])[at]
expected = (cumulative * val.exp()).sum().item()
if RANK == 0:
    print(f"events: expected {expected:.1f}, observed {val_events.sum():.0f}")
    baseline = {"times": steps, "hazard": hazard}
    torch.save({"net": net.state_dict(), "baseline": baseline}, "cox.pt")
dist.destroy_process_group()
