"""Quantization-aware fine-tuning of a small image classifier to 4 bits.

    torchrun --nproc-per-node 2 train.py

Starts from a float model (float.pt). Activations are quantized by moving averages of
their ranges, weights by steps that are learned. BATCH is over all processes; with
--shift 0 any number of them prints the same (in doubles no rounding makes a step).
"""

import argparse
import math

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, Dataset, DistributedSampler

torch.set_default_dtype(torch.float64)
CLASSES, SIZE, BITS = 6, 12, 4
EPOCHS, BATCH, LR, SEED = 4, 64, 0.01, 2
WARMUP, FREEZE = 4, 3  # steps; the epoch from which ranges stay
FLOAT, BEST = "float.pt", "best.pt"


class Textures(Dataset):
    """Noisy waves; the class is their direction and length."""

    def __init__(self, n, seed, shift=0):
        rng = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(CLASSES, (n,), generator=rng)
        kind = self.labels.view(n, 1, 1, 1)
        angle = kind % 3 * math.pi / 3 + 0.25 * torch.randn(n, 1, 1, 1, generator=rng)
        phase = 2 * math.pi * torch.rand(n, 1, 1, 1, generator=rng)
        x = torch.arange(SIZE)
        along = x * angle.cos() + x.unsqueeze(1) * angle.sin()
        wave = torch.sin((0.9 + 0.5 * (kind // 3)) * along + phase)
        self.images = wave + torch.randn(n, 1, SIZE, SIZE, generator=rng)
        self.shift = shift

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        move = torch.randint(-self.shift, self.shift + 1, (2,)).tolist()
        return self.images[i].roll(move, (1, 2)), self.labels[i]


def float_net():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.GroupNorm(4, 32), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, CLASSES),
    )  # fmt: skip


def round_through(x):
    return x + (x.round() - x).detach()


class FakeQuant(nn.Module):
    """Quantizes activations by a moving average of their range."""

    def __init__(self, momentum=0.2):
        super().__init__()
        self.levels, self.momentum, self.observing = 2**BITS - 1, momentum, True
        self.register_buffer("range", torch.zeros(2))  # -low, high

    def forward(self, x):
        if self.training and self.observing:
            low, high = x.detach().aminmax()
            ends = torch.stack([-low, high]).clamp(min=0)
            dist.all_reduce(ends, op=dist.ReduceOp.MAX)
            self.range.lerp_(ends, self.momentum if self.range.any() else 1.0)
        scale = self.range.sum().clamp(min=1e-6) / self.levels
        zero = (self.range[0] / scale).round()
        code = round_through(x / scale + zero).clamp(0, self.levels)
        return (code - zero) * scale


class Quantized(nn.Module):
    """A layer with quantized input, and weights in learned steps, one a channel."""

    def __init__(self, layer):
        super().__init__()
        self.layer, self.top = layer, 2 ** (BITS - 1) - 1
        self.input = FakeQuant()
        w = layer.weight.detach()
        size = w.abs().mean(tuple(range(1, w.dim())), keepdim=True)
        self.step = nn.Parameter(2 * size / math.sqrt(self.top))

    def forward(self, x):
        scaled = (self.layer.weight / self.step).clamp(-self.top - 1, self.top)
        weight = round_through(scaled) * self.step
        return functional_call(self.layer, {"weight": weight}, (self.input(x),))


def prepare(net):
    for name, layer in list(net.named_children()):
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            setattr(net, name, Quantized(layer))


def make_float_model(data):
    """Stand-in for a model from elsewhere: trained without quantization."""
    torch.manual_seed(0)
    net = float_net()
    adam = torch.optim.Adam(net.parameters(), lr=0.01)
    for _ in range(50):
        adam.zero_grad()
        F.cross_entropy(net(data.images), data.labels).backward()
        adam.step()
    torch.save(net.state_dict(), FLOAT)


def warmup_cosine(step, total):
    if step < WARMUP:
        return (step + 1) / WARMUP
    return 0.5 * (1 + math.cos(math.pi * (step - WARMUP) / (total - WARMUP)))


@torch.no_grad()
def top1(net, data):
    net.eval()
    rank, world = dist.get_rank(), dist.get_world_size()
    hits = net(data.images[rank::world]).argmax(1) == data.labels[rank::world]
    counts = torch.tensor([hits.sum(), len(hits)])
    dist.all_reduce(counts)
    return (100 * counts[0] / counts[1]).item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--shift", type=int, default=1, help="pixels, at random")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    train = Textures(640, seed=1, shift=args.shift)
    val, test = Textures(203, seed=2), Textures(301, seed=3)
    sampler = DistributedSampler(train, seed=SEED)
    loader = DataLoader(train, BATCH // world, sampler=sampler)
    if rank == 0:
        make_float_model(train)
    dist.barrier()
    net = float_net()
    net.load_state_dict(torch.load(FLOAT))
    prepare(net)
    model = DistributedDataParallel(net, forward_sync_buffers=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=0.9)
    total = EPOCHS * len(loader)
    scheduler = LambdaLR(optimizer, lambda step: warmup_cosine(step, total))
    torch.manual_seed(SEED + 1 + rank)
    best = 0.0
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        model.train()
        for part in net.modules():
            if isinstance(part, FakeQuant):
                part.observing = epoch < FREEZE
        sums = torch.zeros(2)
        for x, y in loader:
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            sums += torch.tensor([loss.item() * len(y), len(y)])
        dist.all_reduce(sums)
        accuracy = top1(net, val)
        if rank == 0:
            print(f"epoch {epoch}  loss {sums[0] / sums[1]:.4f}  top-1 {accuracy:.2f}")
        if accuracy > best:
            best = accuracy
            if rank == 0:
                torch.save(net.state_dict(), BEST)
    dist.barrier()
    net.load_state_dict(torch.load(BEST))
    accuracy = top1(net, test)
    if rank == 0:
        print(f"test top-1 {accuracy:.2f} in {BITS} bits")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
