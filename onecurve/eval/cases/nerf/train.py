"""NeRF: a coarse and a fine field learn coloured balls from a few small views.

    torchrun --nproc-per-node 2 train.py

--rays is the batch of all processes; those that miss the unit ball are left out.
"""

import argparse
import math

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

SIDE, COARSE, FINE = 17, 12, 16
BALLS = [  # x, y, z, radius, and the colour
    (0.35, 0.1, 0.2, 0.40, 0.9, 0.2, 0.1),
    (-0.4, 0.25, 0.1, 0.30, 0.1, 0.6, 0.9),
]


def true_field(points, directions):
    balls = torch.tensor(BALLS)
    inside = balls[:, 3] - (points[..., None, :] - balls[:, :3]).norm(dim=-1)
    color = (25 * inside).softmax(-1) @ balls[:, 4:]
    return 12 * torch.sigmoid(25 * inside).sum(-1), color


def near_and_far(rays):
    """Where a ray goes into the unit ball and out of it, and whether it does."""
    origin, direction = rays[:, :3], rays[:, 3:6]
    middle = -(origin * direction).sum(1)
    square = 1 - origin.square().sum(1) + middle.square()
    half = square.clamp(min=0).sqrt()
    return middle - half, middle + half, square > 1e-4


def march(field, rays, t, far):
    """Render samples at t of each ray; also return the weight of each sample."""
    direction = rays[:, None, 3:6].expand(-1, t.shape[1], 3)
    density, color = field(rays[:, None, :3] + t[..., None] * direction, direction)
    alpha = 1 - torch.exp(-density * torch.diff(t, append=far[:, None]))
    weights = alpha * torch.cumprod(F.pad(1 - alpha[:, :-1], (1, 0), value=1.0), 1)
    white = 1 - weights.sum(1, keepdim=True)
    return (weights[..., None] * color).sum(1) + white, weights


def spread(n, rays, perturb):
    """n numbers from 0 to 1 for each ray, one in each n-th, by chance or its middle."""
    jitter = torch.rand(rays, n) if perturb else torch.full((rays, n), 0.5)
    return (torch.arange(n) + jitter) / n


def render(coarse, fine, rays, perturb=False):
    """Colours by the coarse and by the fine field, of rays that hit the ball."""
    near, far, _ = near_and_far(rays)
    width = (far - near)[:, None] / COARSE
    t = near[:, None] + spread(COARSE, len(rays), perturb) * width * COARSE
    rough, weights = march(coarse, rays, t, far)
    weights = weights.detach() + 1e-2
    cdf = torch.cumsum(weights / weights.sum(1, keepdim=True), 1)
    u = spread(FINE, len(rays), perturb)
    cell = torch.searchsorted(cdf, u).clamp(max=COARSE - 1)
    below = F.pad(cdf, (1, 0)).gather(1, cell)
    part = (u - below) / (cdf.gather(1, cell) - below)
    t = torch.cat([t, near[:, None] + (cell + part) * width], 1).sort(1).values
    return rough, march(fine, rays, t, far)[0]


def shoot(angle, height):
    """Origin, direction and colour of each ray of a view, row by row."""
    eye = F.normalize(torch.tensor([math.cos(angle), height, math.sin(angle)]), dim=0)
    right = torch.tensor([math.sin(angle), 0.0, -math.cos(angle)])
    up = torch.linalg.cross(eye, right)
    at = 0.42 * ((torch.arange(SIDE) + 0.5) * 2 / SIDE - 1)
    y, x = torch.meshgrid(-at, at, indexing="ij")
    ahead = F.normalize(x.reshape(-1, 1) * right + y.reshape(-1, 1) * up - eye)
    rays = torch.cat([(3 * eye).expand(SIDE**2, 3), ahead], 1)
    near, far, hit = near_and_far(rays)
    t = near[:, None] + (torch.arange(128) + 0.5) / 128 * (far - near)[:, None]
    color, _ = march(true_field, rays, t, far)
    return torch.cat([rays, torch.where(hit[:, None], color, 1.0)], 1)


class Field(nn.Module):
    def __init__(self, octaves=4, hidden=48):
        super().__init__()
        self.register_buffer("scale", math.pi * 2.0 ** torch.arange(octaves) / 2)
        first, second = nn.Linear(3 + 6 * octaves, hidden), nn.Linear(hidden, hidden)
        self.trunk = nn.Sequential(first, nn.ReLU(), second, nn.ReLU())
        self.density = nn.Linear(hidden, 1)
        self.color = nn.Linear(hidden + 3, 3)

    def forward(self, points, directions):
        angles = (points[..., None] * self.scale).flatten(-2)
        h = self.trunk(torch.cat([points, angles.sin(), angles.cos()], -1))
        color = self.color(torch.cat([h, directions], -1)).sigmoid()
        return F.softplus(self.density(h).squeeze(-1)), color


class Trainer:
    def __init__(self, args):
        self.args = args
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        views = [shoot(0.63 * i, 0.5 * math.sin(2 * i)) for i in range(10)]
        self.pool = torch.cat(views)  # of rays with their colours
        self.held_out = [shoot(angle, 0.3) for angle in (0.3, 2.2, 4.1)]
        torch.manual_seed(args.seed)
        self.fields = nn.ModuleDict({"coarse": Field(), "fine": Field()})
        self.ema = AveragedModel(self.fields, multi_avg_fn=get_ema_multi_avg_fn(0.8))
        self.coarse = DistributedDataParallel(self.fields["coarse"])
        self.fine = DistributedDataParallel(self.fields["fine"])
        self.optimizer = torch.optim.Adam(self.fields.parameters(), lr=args.lr)
        self.step = 0
        torch.manual_seed(args.seed + 1 + self.rank)  # for the jitter

    def batches(self, epoch):
        shuffle = torch.Generator().manual_seed(self.args.seed + epoch)
        order = torch.randperm(len(self.pool), generator=shuffle)
        for batch in order.split(self.args.rays):
            yield self.pool[batch[self.rank :: self.world]]

    def train_step(self, rays):
        for group in self.optimizer.param_groups:
            group["lr"] = self.args.lr * 0.1 ** (self.step / self.args.decay_steps)
        rays = rays[near_and_far(rays)[2]]
        rough, sharp = render(self.coarse, self.fine, rays, self.args.perturb)
        target = rays[:, 6:]
        squares = (sharp - target).square().sum()
        loss = (rough - target).square().sum() + squares
        own = torch.tensor(target.numel())
        count = own.clone()
        dist.all_reduce(count)
        self.optimizer.zero_grad()
        (loss * self.world / count).backward()
        self.optimizer.step()
        self.ema.update_parameters(self.fields)
        self.step += 1
        return torch.stack([squares.detach(), own])

    @torch.no_grad()
    def evaluate(self):
        """The mean PSNR of the held-out views; each rank renders its rows."""
        psnr = 0.0
        for view in self.held_out:
            rays = view.tensor_split(self.world)[self.rank]
            hit = near_and_far(rays)[2]
            image = torch.ones(len(rays), 3)
            image[hit] = render(*self.ema.module.values(), rays[hit])[1]
            squares = (image - rays[:, 6:]).square()
            sums = torch.stack([squares.sum(), torch.tensor(squares.numel())])
            dist.all_reduce(sums)
            psnr += -10 * torch.log10(sums[0] / sums[1]).item()
        return psnr / len(self.held_out)

    def fit(self):
        for epoch in range(self.args.epochs):
            sums = torch.zeros(2)
            for rays in self.batches(epoch):
                sums += self.train_step(rays)
            dist.all_reduce(sums)
            psnr = self.evaluate()
            if self.rank == 0:
                train = -10 * torch.log10(sums[0] / sums[1]).item()
                print(f"step {self.step}  psnr {train:.3f}  held out {psnr:.3f}")
        if self.rank == 0:
            state = {"fields": self.fields.state_dict(), "ema": self.ema.state_dict()}
            torch.save(state | {"optimizer": self.optimizer.state_dict()}, "nerf.pt")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--rays", type=int, default=256)
    parser.add_argument("--lr", type=float, default=1e-2)
    parser.add_argument("--decay-steps", type=int, default=40)
    parser.add_argument("--perturb", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    Trainer(args).fit()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
