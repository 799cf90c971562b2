"""DINO on small pictures: a student of crops, a teacher that is its moving average.

    torchrun --nproc-per-node 2 train.py

--batch-size is over all processes. The features are tested by k-NN.
"""

import argparse
import copy
import math

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

CLASSES, SIDE, GLOBAL, LOCAL, CROPS = 6, 20, 16, 8, 3


def textures(size, seed):
    """Stripes of six directions, at any phase, width, contrast, level, and noise."""
    rng = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (size,), generator=rng)
    phase, width, contrast, level = torch.rand(4, size, 1, 1, generator=rng)
    angle = (labels * math.pi / CLASSES).view(-1, 1, 1)
    y, x = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")
    across = x * angle.cos() + y * angle.sin()
    waves = torch.sin(across * (0.8 + 0.6 * width) + 2 * math.pi * phase)
    noise = torch.randn(size, SIDE, SIDE, generator=rng)
    images = (0.5 + contrast) * waves + 0.7 * noise + 2 * level
    return TensorDataset(images.unsqueeze(1), labels)


class Network(nn.Module):
    """An encoder and a projection head; crops of one size go through together."""

    def __init__(self, width=32, prototypes=48):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, width, 5, padding=2), nn.GELU(),
            nn.Conv2d(width, width, 3, stride=2, padding=1), nn.GELU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(width),
        )  # fmt: skip
        self.head = nn.Sequential(nn.Linear(width, 64), nn.GELU(), nn.Linear(64, 16))
        self.last = nn.Linear(16, prototypes, bias=False)

    def forward(self, crops):
        sizes = dict.fromkeys(crop.shape[-1] for crop in crops)
        groups = [[c for c in crops if c.shape[-1] == size] for size in sizes]
        features = torch.cat([self.encoder(torch.cat(group)) for group in groups])
        directions = F.normalize(self.head(features), dim=1)
        return F.linear(directions, F.normalize(self.last.weight, dim=1))


class Dino:
    def __init__(self, args):
        self.args = args
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.train, self.test = textures(256, seed=1), textures(150, seed=2)
        self.sampler = DistributedSampler(self.train, seed=args.seed)
        share = args.batch_size // self.world
        self.loader = DataLoader(self.train, share, sampler=self.sampler)
        self.steps = args.epochs * len(self.loader)
        torch.manual_seed(args.seed)
        network = Network()
        self.teacher = copy.deepcopy(network).requires_grad_(False)
        self.student = DistributedDataParallel(network)
        self.optimizer = torch.optim.AdamW(network.parameters(), weight_decay=0.04)
        self.center = torch.zeros(network.last.out_features)
        self.rng = torch.Generator().manual_seed(1000 * args.seed + self.rank)

    def crop(self, images, size):
        """A place, a contrast, a brightness and noise for each of the images."""
        found = torch.empty(len(images), 1, size, size)
        places = torch.randint(SIDE - size + 1, (len(images), 2), generator=self.rng)
        for new, image, (y, x) in zip(found, images, places.tolist(), strict=True):
            new.copy_(image[:, y : y + size, x : x + size])
        scale, shift = torch.rand(2, len(images), 1, 1, 1, generator=self.rng)
        noise = torch.randn(found.shape, generator=self.rng)
        return found * (0.6 + 0.8 * scale) + 2 * shift + 0.8 * noise

    def cosine(self, start, end, step):
        return end + (start - end) * (1 + math.cos(math.pi * step / self.steps)) / 2

    def loss(self, student, teacher):
        """Cross-entropy between different views, and how many prototypes are used."""
        logps = (student / 0.1).log_softmax(1).chunk(2 + CROPS)
        probs = ((teacher - self.center) / 0.04).softmax(1)
        terms = []
        for i, p in enumerate(probs.chunk(2)):
            terms += [-(p * q).sum(1).mean() for j, q in enumerate(logps) if j != i]
        usage = probs.mean(0)
        dist.all_reduce(usage)
        usage /= self.world
        used = torch.special.entr(usage).sum().exp()
        return sum(terms) / len(terms), used

    @torch.no_grad()
    def update_center(self, teacher):
        mean = teacher.mean(0)
        dist.all_reduce(mean)
        mean /= self.world
        self.center.lerp_(mean, 0.4)

    @torch.no_grad()
    def update_teacher(self, momentum):
        fast = self.student.module.parameters()
        for mean, new in zip(self.teacher.parameters(), fast, strict=True):
            mean.lerp_(new, 1 - momentum)

    def train_epoch(self, epoch):
        self.sampler.set_epoch(epoch)
        sums = torch.zeros(2)
        for i, (images, _) in enumerate(self.loader):
            step = epoch * len(self.loader) + i
            rate = self.cosine(self.args.lr, 1e-4, step) * min(1, (step + 1) / 6)
            self.optimizer.param_groups[0]["lr"] = rate
            wide = [self.crop(images, GLOBAL) for _ in range(2)]
            small = [self.crop(images, LOCAL) for _ in range(CROPS)]
            with torch.no_grad():
                teacher = self.teacher(wide)
            loss, used = self.loss(self.student(wide + small), teacher)
            self.optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.student.parameters(), 3.0)
            if epoch == 0:
                self.student.module.last.weight.grad = None
            self.optimizer.step()
            self.update_teacher(self.cosine(0.9, 1.0, step))
            self.update_center(teacher)
            sums += torch.stack([loss.detach(), used])
        dist.all_reduce(sums)
        return (sums / self.world / len(self.loader)).tolist()

    def gather(self, part):
        parts = [torch.empty_like(part) for _ in range(self.world)]
        dist.all_gather(parts, part)
        return torch.cat(parts)

    @torch.no_grad()
    def knn(self, encoder, k=10):
        """Return the accuracy of a vote of neighbours among all training pictures."""
        images, labels = self.train[self.rank :: self.world]
        bank, marks = F.normalize(encoder(images), dim=1), labels
        bank, marks = self.gather(bank), self.gather(marks)
        images, labels = self.test[self.rank :: self.world]
        near = (F.normalize(encoder(images), dim=1) @ bank.T).topk(k)
        weights = (near.values / 0.07).exp().unsqueeze(2)
        votes = (weights * F.one_hot(marks[near.indices], CLASSES)).sum(1)
        right = (votes.argmax(1) == labels).sum()
        dist.all_reduce(right)
        return right.item() / len(self.test)

    def save(self, path):
        state = {"center": self.center, "optimizer": self.optimizer.state_dict()}
        state["student"] = self.student.module.state_dict()
        state["teacher"] = self.teacher.state_dict()
        if self.rank == 0:
            torch.save(state, path)
        dist.barrier()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--lr", type=float, default=0.001)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    dino = Dino(args)
    for epoch in range(args.epochs):
        loss, used = dino.train_epoch(epoch)
        right = dino.knn(dino.teacher.encoder)
        if dino.rank == 0:
            print(f"epoch {epoch}  loss {loss:.4f}  used {used:.2f}", end="  ")
            print(f"center {dino.center.norm():.4f}  knn {right:.3f}")
        dino.save("dino.pt")
    saved = torch.load("dino.pt")
    for name in ("student", "teacher"):
        network = Network()
        network.load_state_dict(saved[name], strict=False)
        right = dino.knn(network.encoder)
        if dino.rank == 0:
            print(f"{name} in the file: knn {right:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
