"""Train a small ResNet on MNIST. The README.md in this folder explains it."""

import argparse
import os
from contextlib import nullcontext
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler
from torchvision import datasets, transforms

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Digits(Dataset):
    """Takes one index; returns an image, 1 x 28 x 28, uint8, and its label."""

    def __init__(self, root, train, augment):
        self.mnist = datasets.MNIST(root, train=train)
        turn = [transforms.RandomAffine(10, translate=(0.1, 0.1))] if augment else []
        self.transform = transforms.Compose([*turn, transforms.PILToTensor()])

    def __len__(self):
        return len(self.mnist)

    def __getitem__(self, index):
        image, label = self.mnist[index]
        return self.transform(image), label


def norm(kind, channels):
    return nn.BatchNorm2d(channels) if kind == "batch" else nn.GroupNorm(2, channels)


class Block(nn.Module):
    def __init__(self, channels, kind):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm1 = norm(kind, channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = norm(kind, channels)

    def forward(self, images):
        hidden = nn.functional.relu(self.norm1(self.conv1(images)))
        return nn.functional.relu(images + self.norm2(self.conv2(hidden)))


class Net(nn.Module):
    def __init__(self, kind, dropout, channels=8):
        super().__init__()
        self.stem = nn.Conv2d(1, channels, 3, stride=2, padding=1)
        self.blocks = nn.Sequential(Block(channels, kind), Block(channels, kind))
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(channels * 49, 10)

    def forward(self, images):  # N x 1 x 28 x 28, uint8
        images = nn.functional.max_pool2d(self.blocks(self.stem(images / 255)), 2)
        return self.head(self.dropout(images.flatten(1)))


def train_epoch(model, loader, optimizer, scheduler, accumulate):
    """Take one step per `accumulate` batches; return the mean loss over all images."""
    model.train()
    loss_sum, count = 0, 0
    for number, (images, labels) in enumerate(loader):
        images, labels = images.to(DEVICE), labels.to(DEVICE)
        first = number - number % accumulate  # batch of this step
        batches = min(accumulate, len(loader) - first)  # the last step may have fewer
        last = number == first + batches - 1
        with nullcontext() if last else model.no_sync():
            loss = nn.functional.cross_entropy(model(images), labels)
            (loss / batches).backward()
        if last:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        loss_sum += loss.detach().double() * len(labels)
        count += len(labels)
    totals = torch.tensor([loss_sum, count], dtype=torch.float64, device=DEVICE)
    dist.all_reduce(totals)  # adds up over all ranks
    loss_sum, count = totals
    return (loss_sum / count).item()


@torch.no_grad()
def evaluate(model, dataset):
    """Return how many images the model classifies correctly, and out of how many."""
    model.eval()
    for buffer in model.buffers():  # use rank 0's BatchNorm statistics
        dist.broadcast(buffer, 0)
    correct = 0
    for images, labels in DataLoader(dataset, batch_size=200):
        images, labels = images.to(DEVICE), labels.to(DEVICE)
        correct += (model(images).argmax(dim=1) == labels).sum().item()
    counts = torch.tensor([correct, len(dataset)], device=DEVICE)
    dist.all_reduce(counts)
    return counts.tolist()


def save(state, path):
    """Write a file and rename it once it is whole: a run may be killed anytime."""
    torch.save(state, path.with_suffix(".tmp"))
    os.replace(path.with_suffix(".tmp"), path)


def main(args):
    if "RANK" not in os.environ:
        raise SystemExit(f"start it with torchrun --nproc-per-node=2 {__file__}")
    rank = int(os.environ["RANK"])
    world_size = int(os.environ["WORLD_SIZE"])
    pieces = args.accumulate * world_size
    if args.batch_size % pieces:
        raise SystemExit(f"--batch-size must be a multiple of {pieces}")
    args.out.mkdir(parents=True, exist_ok=True)
    if DEVICE == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    dist.init_process_group(args.backend)

    train = Digits(args.data, train=True, augment=args.augment)
    test = Digits(args.data, train=False, augment=False)
    shard = torch.utils.data.Subset(test, range(rank, len(test), world_size))
    sampler = DistributedSampler(train, seed=args.seed, drop_last=True)
    batch = args.batch_size // args.accumulate // world_size
    loader = DataLoader(
        train, batch, sampler=sampler, num_workers=args.workers, drop_last=True
    )

    torch.manual_seed(args.seed)
    model = Net(args.norm, args.dropout).to(DEVICE)
    ddp_model = nn.parallel.DistributedDataParallel(model)  # averages gradients
    matrices = [weights for weights in model.parameters() if weights.dim() > 1]
    others = [weights for weights in model.parameters() if weights.dim() == 1]
    groups = [{"params": matrices}, {"params": others, "weight_decay": 0}]
    optimizer = torch.optim.AdamW(groups, lr=args.lr, weight_decay=0.05)
    steps = args.epochs * -(-len(loader) // args.accumulate)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(  # warm-up, then a cosine
        optimizer, args.lr, total_steps=steps, pct_start=0.1, cycle_momentum=False
    )

    state_path = args.out / "state.pth"
    state = {"epoch": 0, "curve": []}
    if rank == 0 and args.resume and state_path.exists():
        state = torch.load(state_path, map_location="cpu", weights_only=True)
    states = [state]
    dist.broadcast_object_list(states)
    state = states[0]
    if state["epoch"]:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        scheduler.load_state_dict(state["scheduler"])

    for epoch in range(state["epoch"] + 1, args.epochs + 1):
        sampler.set_epoch(epoch)  # without it, every epoch has the same order
        own_seed = args.seed + epoch * world_size + rank
        torch.manual_seed(own_seed)  # dropout, and the workers' augmentation
        loss = train_epoch(ddp_model, loader, optimizer, scheduler, args.accumulate)
        correct, total = evaluate(model, shard)
        state = {"epoch": epoch, "curve": [*state["curve"], loss]}
        state["scheduler"] = scheduler.state_dict()
        state["model"] = model.state_dict()
        state["optimizer"] = optimizer.state_dict()
        if rank == 0:
            print(f"epoch {epoch}  loss {loss:.6f}  test {correct}/{total}")
            save(state, state_path)


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=64, help="images per step")
    parser.add_argument("--accumulate", type=int, default=2, help="batches per step")
    parser.add_argument("--lr", type=float, default=0.01, help="highest learning rate")
    parser.add_argument("--norm", choices=["batch", "group"], default="batch")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--no-augment", dest="augment", action="store_false")
    parser.add_argument("--workers", type=int, default=2, help="of the loader")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", type=Path, default="data/sample", help="MNIST root")
    parser.add_argument("--out", type=Path, default="runs/own_script", help="results")
    parser.add_argument("--resume", action="store_true", help="continue in --out")
    backend = "nccl" if DEVICE == "cuda" else "gloo"
    parser.add_argument("--backend", default=backend, help="nccl or gloo")
    return parser.parse_args()


if __name__ == "__main__":
    main(parse_args())
    dist.destroy_process_group()
