"""Learn an embedding from triplets: margin loss with a boundary for each class.

    torchrun --nproc-per-node 2 train.py

The trunk is frozen in the first epoch. Retrieval is tested with unseen classes.
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import normalize
from torch.nn.parallel import DistributedDataParallel as DDP

CLASSES, EACH, SIZE = 16, 12, 8


def make_images(classes, each, seed):
    """Every class is a pattern; an image of it is shifted, dimmed and noisy."""
    g = torch.Generator().manual_seed(seed)
    images, labels = [], []
    for label in range(classes):
        pattern = torch.randn(1, SIZE, SIZE, generator=g)
        for _ in range(each):
            shift = torch.randint(-1, 2, (2,), generator=g).tolist()
            light = 0.5 + torch.rand(1, generator=g)
            noise = 0.9 * torch.randn(1, SIZE, SIZE, generator=g)
            images.append(light * pattern.roll(shift, (1, 2)) + noise)
            labels.append(label)
    return torch.stack(images), torch.tensor(labels)


def draw_triplets(labels, n, seed):
    """Rows of (anchor, positive, negative), the same on every rank."""
    g = torch.Generator().manual_seed(seed)
    rows = []
    for anchor in torch.randint(len(labels), (n,), generator=g).tolist():
        same = labels == labels[anchor]
        other = (~same).nonzero().flatten()
        same[anchor] = False
        same = same.nonzero().flatten()
        positive = same[torch.randint(len(same), (1,), generator=g)].item()
        negative = other[torch.randint(len(other), (1,), generator=g)].item()
        rows.append([anchor, positive, negative])
    return torch.tensor(rows)


class Embedder(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Conv2d(1, 12, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(12, 24, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
        )
        self.head = nn.Linear(24 * (SIZE // 2) ** 2, dim)

    def forward(self, x):
        return normalize(self.head(self.trunk(x)), dim=1)


class MarginLoss(nn.Module):
    """Positives within beta - margin, negatives beyond beta + margin."""

    def __init__(self, classes, margin=0.2):
        super().__init__()
        self.margin = margin
        self.beta = nn.Parameter(torch.full((classes,), 1.2))

    def forward(self, anchor, positive, negative, labels):
        beta = self.beta[labels]
        near = (self.margin + (anchor - positive).norm(dim=1) - beta).relu()
        far = (self.margin + beta - (anchor - negative).norm(dim=1)).relu()
        active = (near > 0).sum() + (far > 0).sum()
        return (near + far).sum(), active


def train_epoch(net, criterion, optimizer, images, labels, triplets, batch):
    rank, world = dist.get_rank(), dist.get_world_size()
    net.train()
    totals = torch.zeros(2)
    for rows in triplets.split(batch):
        rows = rows[rank::world]
        out = net(images[rows.T.flatten()])
        loss, active = criterion(*out.chunk(3), labels[rows[:, 0]])
        totals += torch.stack([loss.detach(), active])
        dist.all_reduce(active)
        optimizer.zero_grad()
        # The mean over what is active on all ranks; DDP divides by their number.
        (loss * world / active.clamp(min=1)).backward()
        optimizer.step()
    dist.all_reduce(totals)
    return (totals[0] / totals[1]).item()


@torch.no_grad()
def recall_at_1(model, images, labels):
    """How often the nearest other image is of the same class."""
    model.eval()
    mine = torch.arange(dist.get_rank(), len(images), dist.get_world_size())
    gallery = torch.zeros(len(images), model.head.out_features)
    gallery[mine] = model(images[mine])
    dist.all_reduce(gallery)  # each row comes from one rank, the others add zeros
    distance = torch.cdist(gallery[mine], gallery)
    distance[torch.arange(len(mine)), mine] = float("inf")
    hits = (labels[distance.argmin(1)] == labels[mine]).sum()
    dist.all_reduce(hits)
    return hits.item() / len(images)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--frozen", type=int, default=1, help="epochs")
    parser.add_argument("--batch", type=int, default=48)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()

    images, labels = make_images(CLASSES, EACH, 1)
    test_images, test_labels = make_images(9, 7, 2)
    torch.manual_seed(args.seed)
    model = Embedder()
    model.trunk.requires_grad_(False)
    net = DDP(model)
    boundaries = MarginLoss(CLASSES)
    criterion = DDP(boundaries)
    groups = [{"params": model.parameters()}, {"params": boundaries.parameters()}]
    optimizer = torch.optim.AdamW(groups, lr=3e-3)

    for epoch in range(args.epochs):
        if epoch == args.frozen:
            model.trunk.requires_grad_(True)
            net = DDP(model)  # the old one knows nothing of the trunk
        triplets = draw_triplets(labels, 591, 1000 * args.seed + epoch)
        data = (images, labels, triplets)
        loss = train_epoch(net, criterion, optimizer, *data, args.batch)
        recall = recall_at_1(model, test_images, test_labels)
        state = {
            "model": model.state_dict(),
            "criterion": boundaries.state_dict(),
            "optimizer": optimizer.state_dict(),
        }
        if rank == 0:
            print(f"epoch {epoch}: loss {loss:.4f}, recall@1 {recall:.4f}")
            torch.save(state, "embedder.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
