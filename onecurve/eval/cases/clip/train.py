"""Contrastive training of two encoders, images and captions, as CLIP does it.

An image is compared with the captions of *all* processes. Each computes the loss of its
own rows, and the gathering lets gradients through, so DDP's mean is the gradient of the
loss over the whole batch. Check: 1, 2 and 4 processes print the same losses.
"""

import math
import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Subset, TensorDataset
from torch.utils.data.distributed import DistributedSampler


@dataclass
class Config:
    epochs: int = 6
    batch: int = 64  # pairs in a step, of all processes
    lr: float = 0.1
    dim: int = 16
    seed: int = 7
    path: str = "clip.pt"


def make_pairs(size: int, seed: int) -> TensorDataset:
    """Captions (size, 8) of words, and pictures (size, 48) of what they speak of."""
    gen = torch.Generator().manual_seed(seed)
    words = torch.randint(64, (size, 8), generator=gen)
    meaning = torch.randn(64, 48, generator=torch.Generator().manual_seed(0))
    noise = torch.randn(size, 48, generator=gen)
    return TensorDataset(meaning[words].mean(1) + 0.2 * noise, words)


class Gather(torch.autograd.Function):
    """The rows of all processes; the gradients of all of them come back."""

    @staticmethod
    def forward(ctx, rows: Tensor) -> Tensor:
        parts = [torch.empty_like(rows) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, rows)
        return torch.cat(parts)

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:
        grad = grad.contiguous()
        dist.all_reduce(grad)
        return grad.chunk(dist.get_world_size())[dist.get_rank()]


class DualEncoder(nn.Module):
    def __init__(self, dim: int):
        super().__init__()
        self.image = nn.Sequential(nn.Linear(48, 64), nn.GELU(), nn.Linear(64, dim))
        self.words = nn.EmbeddingBag(64, 32)
        self.text = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, dim))

    def forward(self, images: Tensor, captions: Tensor) -> tuple[Tensor, ...]:
        image = F.normalize(self.image(images), dim=-1)
        text = F.normalize(self.text(self.words(captions)), dim=-1)
        return image, text, self.logit_scale.exp()


class Trainer:
    def __init__(self, config: Config):
        self.config = config
        self.rank, self.world = dist.get_rank(), dist.get_world_size()

        pairs = make_pairs(640, seed=1)
        self.sampler = DistributedSampler(pairs, seed=config.seed, drop_last=True)
        size = config.batch // self.world
        self.loader = DataLoader(pairs, size, sampler=self.sampler, drop_last=True)
        test = make_pairs(200, seed=2)
        self.test = Subset(test, range(self.rank, len(test), self.world))

        torch.manual_seed(config.seed)
        model = DualEncoder(config.dim)
        model.logit_scale = nn.Parameter(torch.tensor(math.log(1 / 0.2)))
        self.model = DDP(model)
        self.optimizer = torch.optim.SGD(model.parameters(), config.lr, momentum=0.9)

    def gather(self, features: Tensor) -> Tensor:
        return Gather.apply(features)

    def loss(self, image: Tensor, text: Tensor, scale: Tensor) -> Tensor:
        """Return the mean loss of this process's pairs among those of all."""
        per_image = scale * image @ self.gather(text).T
        per_text = scale * text @ self.gather(image).T
        labels = torch.arange(len(image)) + self.rank * len(image)
        both = F.cross_entropy(per_image, labels) + F.cross_entropy(per_text, labels)
        return both / 2

    def train_epoch(self, epoch: int) -> float:
        self.model.train()
        self.sampler.set_epoch(epoch)
        losses = []
        for images, captions in self.loader:
            loss = self.loss(*self.model(images, captions))
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            losses.append(loss.detach())
        mean = torch.stack(losses).mean()
        dist.all_reduce(mean)
        return mean.item() / self.world

    @torch.no_grad()
    def recall(self) -> float:
        """Return the share of test images whose own caption is the nearest of all."""
        self.model.eval()
        images, captions = next(iter(DataLoader(self.test, len(self.test))))
        image, text, _ = self.model.module(images, captions)
        image, text = self.gather(image), self.gather(text)
        nearest = (image @ text.T).argmax(1)
        return (nearest == torch.arange(len(image))).float().mean().item()

    def fit(self) -> None:
        for epoch in range(self.config.epochs):
            loss = self.train_epoch(epoch)
            recall = self.recall()
            if self.rank == 0:
                print(f"[{epoch}] loss={loss:.5f} recall@1={recall:.4f}", flush=True)
        if self.rank == 0:
            torch.save(self.model.module.state_dict(), self.config.path)


if __name__ == "__main__":
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    else:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    Trainer(Config()).fit()
    dist.destroy_process_group()
