"""Stage 3 from scratch: no data loader, and the wrapper moves the images."""

import argparse
import pathlib
import time

import torch
import torch.nn.functional as F
import torchvision

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", default=3, type=int)
parser.add_argument("--batch-size", default=64, type=int)
parser.add_argument("--lr", default=0.1, type=float)
parser.add_argument("--hidden", default=128, type=int)
parser.add_argument("--seed", default=0, type=int)
parser.add_argument("--data", default="data/mnist")
parser.add_argument("--out", default="runs/rewritten", type=pathlib.Path)
options = parser.parse_args()
options.out.mkdir(parents=True, exist_ok=True)

device = torch.accelerator.current_accelerator(check_available=True) or "cpu"


def load(train):
    digits = torchvision.datasets.MNIST(options.data, train=train)
    pixels = digits.data.to(torch.get_default_dtype()).div(255).flatten(1)
    return pixels, digits.targets


x, y = load(True)
x_test, y_test = load(False)
torch.manual_seed(options.seed)
net = torch.nn.Sequential()
net.layers = torch.nn.Sequential(
    torch.nn.Identity(),
    torch.nn.Linear(784, options.hidden),
    torch.nn.ReLU(),
    torch.nn.Linear(options.hidden, 10),
)
net.to(device)
y, y_test = y.to(device), y_test.to(device)
wrapper = torch.nn.DataParallel(net)
optimizer = torch.optim.SGD(wrapper.parameters(), options.lr)
rows = ["epoch,loss,correct,total,seconds"]
for epoch in range(1, options.epochs + 1):
    begin, total = time.time(), 0.0
    generator = torch.Generator().manual_seed(options.seed + epoch)
    for chosen in torch.randperm(len(x), generator=generator).split(options.batch_size):
        optimizer.zero_grad()
        loss = F.cross_entropy(wrapper(x[chosen]), y[chosen])
        loss.backward()
        optimizer.step()
        total += loss.detach() * len(chosen)
    with torch.no_grad():
        correct = int((wrapper(x_test).argmax(1) == y_test).sum())
    loss = float(total) / len(x)
    rows.append(f"{epoch},{loss},{correct},{len(x_test)},{time.time() - begin}")
    print(rows[-1])
(options.out / "metrics.csv").write_text("\n".join(rows) + "\n")
state = {key: value.cpu() for key, value in net.state_dict().items()}
torch.save(state, options.out / "model.pth")
