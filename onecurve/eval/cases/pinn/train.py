"""A physics-informed network that finds the diffusivity of a rod from few sensors.

    torchrun --nproc-per-node 2 train.py

The temperature u(x, t) obeys u_t = kappa u_xx, is zero at both ends and known at the
start; kappa is learned from noisy readings. All numbers of points are over all ranks.
Points are drawn anew in each step; the terms of the loss are balanced by the size of
their gradients.
"""

import math
import os

import torch
import torch.distributed as dist
from torch import nn

INNER, EDGE, STEPS, REPORT = 384, 96, 40, 5
TERMS = ("equation", "edges", "start", "sensors")
KAPPA = 0.08  # what is to be found

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(int(os.environ.get("SEED", "0")) + rank)


def exact(x, t):
    slow = torch.exp(-KAPPA * math.pi**2 * t) * torch.sin(math.pi * x)
    fast = torch.exp(-9 * KAPPA * math.pi**2 * t) * torch.sin(3 * math.pi * x)
    return slow + 0.5 * fast


class Field(nn.Module):
    """u(x, t) from random Fourier features, which are not trained."""

    def __init__(self, features=24, hidden=32):
        super().__init__()
        self.register_buffer("waves", 2.0 * torch.randn(2, features))
        self.layers = nn.Sequential(
            nn.Linear(2 * features, hidden),
            nn.Tanh(),
            nn.Linear(hidden, hidden),
            nn.Tanh(),
            nn.Linear(hidden, 1),
        )

    def forward(self, x, t):
        phase = torch.stack([x, t], 1) @ self.waves
        return self.layers(torch.cat([phase.sin(), phase.cos()], 1)).squeeze(1)


field = Field()
log_kappa = nn.Parameter(torch.empty(()).uniform_(-2.5, -0.5))
for tensor in [*field.state_dict().values(), log_kappa.detach()]:
    dist.broadcast(tensor, src=0)
learned = [*field.parameters(), log_kappa]
fast = {"params": [log_kappa], "lr": 0.05}
optimizer = torch.optim.Adam([{"params": field.parameters()}, fast], lr=0.01)
plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.7, patience=2)

readings = torch.Generator().manual_seed(7)
sensor_x, sensor_t = torch.rand(2, 75, generator=readings)
sensor_u = exact(sensor_x, sensor_t) + 0.02 * torch.randn(75, generator=readings)
sensor_x, sensor_t, sensor_u = (
    values[rank::world] for values in (sensor_x, sensor_t, sensor_u)
)


def slope(y, x):
    return torch.autograd.grad(y.sum(), x, create_graph=True)[0]


def equation(x, t):
    x, t = x.requires_grad_(), t.requires_grad_()
    u = field(x, t)
    return slope(u, t) - log_kappa.exp() * slope(slope(u, x), x)


def terms(draws):
    """This rank's parts of the four mean squares, which are sums over the ranks."""
    inner_x, inner_t = torch.rand(INNER, 2, generator=draws)[rank::world].unbind(1)
    edge = torch.rand(EDGE, generator=draws)[rank::world]
    side = (torch.rand(EDGE, generator=draws)[rank::world] < 0.5).to(edge.dtype)
    start = torch.rand(EDGE, generator=draws)[rank::world]
    at_start = torch.zeros_like(start)
    misses = (
        equation(inner_x, inner_t) / INNER**0.5,
        field(side, edge) / EDGE**0.5,
        (field(start, at_start) - exact(start, at_start)) / EDGE**0.5,
        (field(sensor_x, sensor_t) - sensor_u) / 75**0.5,
    )
    return torch.stack([miss.square().sum() for miss in misses])


def gradient(term):
    """The gradient of a term, in one piece."""
    parts = torch.autograd.grad(
        term, learned, retain_graph=True, allow_unused=True, materialize_grads=True
    )
    return torch.cat([part.flatten() for part in parts])


@torch.no_grad()
def errors(side=41):
    """The relative L2 error and the largest error, on a grid."""
    places = torch.linspace(0, 1, side)
    x, t = torch.cartesian_prod(places, places)[rank::world].unbind(1)
    truth = exact(x, t)
    miss = field(x, t) - truth
    squares = torch.stack([miss.square().sum(), truth.square().sum()])
    largest = miss.abs().max()
    dist.all_reduce(squares)
    dist.all_reduce(largest, op=dist.ReduceOp.MAX)
    return (squares[0] / squares[1]).sqrt().item(), largest.item()


draws = torch.Generator().manual_seed(1)
weights = torch.ones(len(TERMS))
since, best = torch.zeros(len(TERMS)), float("inf")
for step in range(1, STEPS + 1):
    parts = terms(draws)
    grads = torch.stack([gradient(part) for part in parts])
    dist.all_reduce(grads)
    sizes = grads.norm(dim=1)
    weights = 0.8 * weights + 0.2 * sizes.sum() / (len(TERMS) * sizes)
    total = weights @ grads
    pieces = total.split([weight.numel() for weight in learned])
    for weight, piece in zip(learned, pieces, strict=True):
        weight.grad = piece.view_as(weight)
    nn.utils.clip_grad_norm_(learned, 5.0)
    optimizer.step()
    parts = parts.detach()
    dist.all_reduce(parts)
    plateau.step(parts.sum())
    since += parts / REPORT
    if step % REPORT == 0:
        relative, largest = errors()
        if rank == 0:
            rate = optimizer.param_groups[0]["lr"]
            shown = "  ".join(f"{k} {v:.4f}" for k, v in zip(TERMS, since, strict=True))
            print(f"step {step:2}  {shown}  lr {rate:.4f}  ", end="")
            print(f"kappa {log_kappa.exp():.4f}  L2 {relative:.4f}  max {largest:.4f}")
            if relative < best:
                found = {"field": field.state_dict(), "log_kappa": log_kappa.data}
                torch.save(found, "pinn.pt")
        best = min(best, relative)
        since.zero_()
dist.destroy_process_group()
