# Finds the five points of small figures (head, hands, feet) by heat maps.
#
#   torchrun --nproc-per-node 2 train.py
#
# Gradients are exchanged by hand. A step learns from the harder half of its images,
# those of all ranks taken together.
import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=5)
parser.add_argument("--bs", type=int, default=48, help="images in a step, on all ranks")
parser.add_argument("--lr", type=float, default=0.01)
parser.add_argument("--hard", type=float, default=0.5, help="share of images to keep")
parser.add_argument("--clip", type=float, default=1.0)
parser.add_argument("--max-shift", type=int, default=2)
parser.add_argument("--seed", type=int, default=5)
cfg = parser.parse_args()

dist.init_process_group("gloo")
RANK, WORLD = dist.get_rank(), dist.get_world_size()

# ------------------------------------------------------------------------------ data
SIZE, STRIDE, POINTS = 24, 2, 5
SWAP = [0, 2, 1, 4, 3]  # left for right
LOW = torch.tensor([[2.0, 8], [8, 2], [8, 14], [16, 3], [16, 13]])  # y, x
HIGH = torch.tensor([[6.0, 15], [15, 9], [15, 21], [21, 10], [21, 20]])
LOOKS = [(1.0, 1.8), (1.0, 1.0), (1.0, 1.0), (-1.0, 1.0), (-1.0, 1.0)]


def bumps(points, size, sigma):
    """A picture with a bump at each point: (..., 2) to (..., size, size)."""
    grid = torch.arange(size, dtype=points.dtype)
    dy = grid - points[..., 0:1]
    dx = grid - points[..., 1:2]
    return torch.exp(-(dy[..., :, None] ** 2 + dx[..., None, :] ** 2) / (2 * sigma**2))


def make(n, seed):
    g = torch.Generator().manual_seed(seed)
    points = LOW + (HIGH - LOW) * torch.rand(n, POINTS, 2, generator=g)
    shown = (torch.rand(n, POINTS, generator=g) < 0.85).float()
    images = 0.5 * torch.randn(n, SIZE, SIZE, generator=g) + 0.4
    for j, (sign, sigma) in enumerate(LOOKS):
        images += sign * shown[:, j, None, None] * bumps(points[:, j], SIZE, sigma)
    return images[:, None], points, shown


def augment(images, points, shown, flip, shift):
    """Mirror some images, and move each by whole pixels."""
    points, shown = points.clone(), shown.clone()
    out = torch.empty_like(images)
    for i in range(len(images)):
        image = images[i]
        if flip[i]:
            image = image.flip(-1)
            points[i], shown[i] = points[i][SWAP], shown[i][SWAP]
            points[i, :, 1] = SIZE - 1 - points[i, :, 1]
        out[i] = image.roll(shift[i].tolist(), (-2, -1))
    return out, points + shift[:, None], shown


train_x, train_p, train_v = make(297, 1)
val_x, val_p, val_v = make(39, 2)

# ----------------------------------------------------------------------------- model
part = train_x[RANK::WORLD].double()
sums = torch.stack([part.sum(), part.square().sum(), torch.tensor(part.numel())])
dist.all_reduce(sums)
mean = sums[0] / sums[2]
std = (sums[1] / sums[2] - mean**2).sqrt()


class Net(nn.Module):
    def __init__(self, mean, std, width=16):
        super().__init__()
        self.register_buffer("mean", mean.float())
        self.register_buffer("std", std.float())
        self.c1 = nn.Conv2d(1, width, 5, stride=STRIDE, padding=2)
        self.c2 = nn.Conv2d(width, width, 3, padding=2, dilation=2)
        self.c3 = nn.Conv2d(width, width, 3, padding=4, dilation=4)
        self.n2, self.n3 = nn.GroupNorm(4, width), nn.GroupNorm(4, width)
        self.where = nn.Parameter(torch.zeros(width, SIZE // STRIDE, SIZE // STRIDE))
        self.out = nn.Conv2d(width, POINTS, 1)
        nn.init.normal_(self.out.weight, std=0.01)

    def forward(self, x):
        x = F.relu(self.c1((x - self.mean) / self.std)) + self.where
        x = x + F.relu(self.n2(self.c2(x)))
        x = x + F.relu(self.n3(self.c3(x)))
        return self.out(x)


torch.manual_seed(cfg.seed)
net = Net(mean, std)
adam = torch.optim.Adam(net.parameters(), lr=cfg.lr)
plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(
    adam, factor=0.5, patience=0, threshold=0.12
)


def image_losses(heat, points, shown):
    """Squared error of an image's heat maps, those of the points that are shown."""
    target = bumps(points / STRIDE, SIZE // STRIDE, 1.0)
    error = (heat - target).square().sum((2, 3))
    return (error * shown).sum(1) / shown.sum(1).clamp(min=1)


# ------------------------------------------------------------------------------ train
best = float("inf")
for epoch in range(cfg.epochs):
    net.train()
    g = torch.Generator().manual_seed(1000 * cfg.seed + epoch)
    order = torch.randperm(len(train_x), generator=g)
    flips = torch.rand(len(train_x), generator=g) < 0.5
    shifts = torch.randint(
        -cfg.max_shift, cfg.max_shift + 1, (len(train_x), 2), generator=g
    )
    running = torch.zeros(2)
    for ids in order.split(cfg.bs):
        own = ids[RANK::WORLD]
        x, p, v = (data[own] for data in (train_x, train_p, train_v))
        x, p, v = augment(x, p, v, flips[own], shifts[own])
        losses = image_losses(net(x), p, v)

        everyone = torch.zeros(len(ids))
        everyone[RANK::WORLD] = losses.detach()
        dist.all_reduce(everyone)
        keep = max(1, int(cfg.hard * len(ids)))
        bar = everyone.topk(keep).values[-1]
        loss = (losses * (losses.detach() >= bar)).sum() / keep

        adam.zero_grad()
        loss.backward()
        for w in net.parameters():
            dist.all_reduce(w.grad)
        nn.utils.clip_grad_norm_(net.parameters(), cfg.clip)
        adam.step()
        running += torch.tensor([everyone.sum(), len(ids)])

    # all ranks score the same number of images; what is over is cut off again
    net.eval()
    count = len(val_x)
    padded = torch.arange(-(-count // WORLD) * WORLD) % count
    own = padded[RANK::WORLD]
    real = len(range(RANK, count, WORLD))
    with torch.no_grad():
        heat = net(val_x[own])
        losses = image_losses(heat, val_p[own], val_v[own])[:real]
    val_loss = losses.sum()
    dist.all_reduce(val_loss)
    val_loss = val_loss.item() / count

    peak = heat.flatten(2).argmax(2)
    side = SIZE // STRIDE
    found = torch.stack([peak // side, peak % side], 2).float() * STRIDE
    pieces = [torch.empty_like(found) for _ in range(WORLD)]
    dist.all_gather(pieces, found)
    found = torch.stack(pieces, 1).flatten(0, 1)[:count]
    close = ((found - val_p).norm(dim=2) < 2.0).float() * val_v
    pck = (close.sum(0) / val_v.sum(0)).tolist()
    pck_all = (close.sum() / val_v.sum()).item()

    rate = adam.param_groups[0]["lr"]
    plateau.step(val_loss)
    if RANK == 0:
        print(
            f"[{epoch}] lr {rate:.3f} train {running[0] / running[1]:.5f} "
            f"val {val_loss:.5f} pck {pck_all:.4f}",
            "(" + " ".join(f"{part:.3f}" for part in pck) + ")",
        )
        if val_loss < best:
            state = {"net": net.state_dict(), "adam": adam.state_dict()}
            torch.save(state, "points.pt")
    best = min(best, val_loss)

dist.destroy_process_group()
