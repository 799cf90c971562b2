"""A program as people have it: a small residual network, trained on one device.

test_realistic.py adds to it what stages 04 and 07 have, line by line, and runs it as
`python realistic.py --data FOLDER --out FOLDER`.
"""

import argparse
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler
from torchvision import datasets, transforms

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Digits(Dataset):
    """Images that are read and changed one at a time."""

    def __init__(self, root, train, transform):
        self.mnist = datasets.MNIST(root, train=train)
        self.transform = transform

    def __len__(self):
        return len(self.mnist)

    def __getitem__(self, index):
        image, label = self.mnist[index]
        return self.transform(image), label


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, images):
        return nn.functional.relu(images + self.norm(self.conv(images)))


class Net(nn.Module):
    def __init__(self, channels=8):
        super().__init__()
        self.stem = nn.Conv2d(1, channels, 3, stride=2, padding=1)
        self.blocks = nn.Sequential(Block(channels), Block(channels))
        self.dropout = nn.Dropout(0.1)
        self.head = nn.Linear(channels, 10)

    def forward(self, images):
        images = self.blocks(self.stem(images)).mean(dim=(2, 3))
        return self.head(self.dropout(images))


def train_epoch(model, loader, optimizer):
    """Take one step per batch; return the mean loss over all images."""
    model.train()
    loss_sum, count = 0, 0
    for images, labels in loader:
        images, labels = images.to(DEVICE), labels.to(DEVICE)
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss_sum += loss.detach().double() * len(labels)
        count += len(labels)
    return (loss_sum / count).item()


@torch.no_grad()
def evaluate(model, dataset):
    """Return how many images the model classifies correctly, and out of how many."""
    model.eval()
    correct = 0
    for images, labels in DataLoader(dataset, batch_size=1000):
        images, labels = images.to(DEVICE), labels.to(DEVICE)
        correct += (model(images).argmax(dim=1) == labels).sum().item()
    return correct, len(dataset)


def save(model, path):
    """Write the weights as CPU tensors, which load on any machine."""
    weights = {name: tensor.cpu() for name, tensor in model.state_dict().items()}
    torch.save(weights, path)


def main(args):
    turn = transforms.RandomAffine(degrees=10, translate=(0.1, 0.1))
    augment = transforms.Compose([turn, transforms.ToTensor()])
    train = Digits(args.data, True, augment)
    test = Digits(args.data, False, transforms.ToTensor())
    sampler = RandomSampler(train, generator=torch.Generator())
    loader = DataLoader(train, args.batch_size, sampler=sampler, num_workers=1)

    torch.manual_seed(args.seed)
    model = Net().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)

    for epoch in range(1, args.epochs + 1):
        sampler.generator.manual_seed(args.seed + epoch)
        loss = train_epoch(model, loader, optimizer)
        correct, total = evaluate(model, test)
        print(f"epoch {epoch}  loss {loss:.6f}  test {correct}/{total}")
        scheduler.step()
    save(model, args.out / "model.pth")


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.003)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    main(parse_args())
