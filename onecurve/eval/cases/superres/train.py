"""Super-resolution by a factor of two, trained on random patches of gray images.

    torchrun --nproc-per-node 2 train.py --epochs 4

--batch and --patches are over all processes. In the first epoch only the upsampler is
trained, then everything. Scores are of the exponential average of the weights.
"""

import argparse
import copy

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

SCALE, BORDER = 2, 2


def make_image(height, width, g):
    """Waves with a few sharp edges, in [0, 1]."""
    y = torch.linspace(0, 1, height)[:, None]
    x = torch.linspace(0, 1, width)[None, :]
    image = torch.zeros(height, width)
    for _ in range(4):
        fy, fx, phase = (torch.rand(3, generator=g) * 20).tolist()
        image += torch.sin(fy * y + fx * x + phase)
    for _ in range(3):
        a, b, c = (torch.rand(3, generator=g) - 0.5).tolist()
        image += 1.5 * ((a * (y - 0.5) + b * (x - 0.5) + 0.3 * c) > 0)
    image -= image.min()
    return (image / image.max())[None]


def make_set(n, seed, sizes):
    g = torch.Generator().manual_seed(seed)
    pairs = [(sizes[i % len(sizes)], sizes[(i + 1) % len(sizes)]) for i in range(n)]
    return [make_image(height, width, g) for height, width in pairs]


def shrink(hr):
    return F.avg_pool2d(hr, SCALE)


def psnr(sr, hr):
    inside = (..., slice(BORDER, -BORDER), slice(BORDER, -BORDER))
    error = (sr.clamp(0, 1)[inside] - hr[inside]).double().square().mean()
    return -10 * error.log10()


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, padding=1)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x):
        return x + 0.2 * self.conv2(F.relu(self.conv1(x)))


class Net(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        head = nn.Conv2d(1, width, 3, padding=1)
        self.body = nn.Sequential(head, Residual(width), Residual(width))
        tail = nn.Conv2d(width, SCALE**2, 3, padding=1)
        self.upsampler = nn.Sequential(tail, nn.PixelShuffle(SCALE))

    def forward(self, lr):
        smooth = F.interpolate(lr, scale_factor=SCALE, mode="bilinear")
        return smooth + self.upsampler(self.body(lr))


class Trainer:
    def __init__(self, args):
        self.args = args
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.steps = args.patches // args.batch
        self.train_images = torch.stack(make_set(24, 1, [48]))
        self.valid_images = make_set(7, 2, [28, 36, 44])
        self.test_images = make_set(9, 3, [32, 40])
        self.rng = torch.Generator().manual_seed(args.seed)

        torch.manual_seed(args.seed)
        self.net = Net()
        self.average = copy.deepcopy(self.net).requires_grad_(False)
        self.net.body.requires_grad_(False)
        self.ddp = DistributedDataParallel(self.net)
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=args.lr)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(
            self.optimizer, T_max=args.epochs * self.steps
        )
        self.best = -float("inf")

    def next_patches(self):
        """This rank's part of the next batch."""
        n, side = self.args.batch, self.args.patch
        top = self.train_images.shape[-1] - side + 1
        ids = torch.randint(len(self.train_images), (n,), generator=self.rng)
        corners = torch.randint(top, (n, 2), generator=self.rng)
        flips = torch.rand(n, generator=self.rng) < 0.5
        patches = []
        for i in range(self.rank, n, self.world):
            y, x = corners[i].tolist()
            patch = self.train_images[ids[i], :, y : y + side, x : x + side]
            patches.append(patch.flip(-1) if flips[i] else patch)
        return torch.stack(patches)

    @torch.no_grad()
    def update_average(self):
        pairs = zip(self.average.parameters(), self.net.parameters(), strict=True)
        for slow, fast in pairs:
            slow.lerp_(fast, 1 - self.args.decay)

    def train_epoch(self, epoch):
        if epoch == 1:
            self.net.body.requires_grad_(True)
            self.ddp = DistributedDataParallel(self.net)
        total = torch.zeros(())
        for _ in range(self.steps):
            hr = self.next_patches()
            loss = F.l1_loss(self.ddp(shrink(hr)), hr)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.schedule.step()
            self.update_average()
            total += loss.detach()
        dist.all_reduce(total)
        return total.item() / self.steps / self.world

    @torch.no_grad()
    def score(self, net, images):
        """Mean PSNR over whole images, in dB."""
        mine = images[self.rank :: self.world]
        total = torch.zeros((), dtype=torch.float64)
        for hr in mine:
            total += psnr(net(shrink(hr[None])), hr[None])
        dist.all_reduce(total)
        return total.item() / len(images)

    def save(self, epoch):
        state = {
            "epoch": epoch,
            "net": self.net.state_dict(),
            "average": self.average.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }
        torch.save(state, self.args.out)

    def run(self):
        for epoch in range(self.args.epochs):
            loss = self.train_epoch(epoch)
            score = self.score(self.average, self.valid_images)
            if self.rank == 0:
                print(f"epoch {epoch}  l1 {loss:.5f}  valid {score:.3f} dB", flush=True)
            if score > self.best:
                self.best = score
                if self.rank == 0:
                    self.save(epoch)
        dist.barrier()
        final, state = Net(), torch.load(self.args.out)
        final.load_state_dict(state["average"])
        score = self.score(final, self.test_images)
        if self.rank == 0:
            print(f"best epoch {state['epoch']}  test {score:.3f} dB")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--patches", type=int, default=160, help="in an epoch")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--patch", type=int, default=24, help="its side")
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--decay", type=float, default=0.9)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--out", default="superres.pt")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    if args.batch % dist.get_world_size():
        parser.error("--batch must be a multiple of the number of processes")
    Trainer(args).run()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
