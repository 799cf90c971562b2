"""Stage 11 from scratch: no data loader, and no functions but one."""

import argparse
import pathlib
import time

import torch
import torch.distributed as dist
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
parser.add_argument("--backend", default="gloo")
parser.add_argument("--resume", action="store_true")
options = parser.parse_args()
options.out.mkdir(parents=True, exist_ok=True)

dist.init_process_group(options.backend)
rank, size = dist.get_rank(), dist.get_world_size()


def load(train):
    digits = torchvision.datasets.MNIST(options.data, train=train)
    pixels = digits.data.to(torch.get_default_dtype()).div(255).flatten(1)
    return pixels, digits.targets


x, y = load(True)
x_test, y_test = load(False)
x_test, y_test = x_test[rank::size], y_test[rank::size]
torch.manual_seed(options.seed)
net = torch.nn.Sequential(
    torch.nn.Linear(784, options.hidden),
    torch.nn.ReLU(),
    torch.nn.Linear(options.hidden, 10),
)
optimizer = torch.optim.SGD(net.parameters(), options.lr)
rows = []
path = options.out / "state.pth"
if options.resume and path.exists():
    state = torch.load(path)
    net.load_state_dict(state["net"])
    optimizer.load_state_dict(state["optimizer"])
    rows = state["rows"]
ddp = torch.nn.parallel.DistributedDataParallel(net)
for epoch in range(len(rows) + 1, options.epochs + 1):
    begin = time.time()
    total = torch.zeros(4)
    generator = torch.Generator().manual_seed(options.seed + epoch)
    order = torch.randperm(len(x), generator=generator)
    order = torch.cat([order, order[: -len(x) % size]])
    for chosen in order[rank::size].split(options.batch_size // size):
        optimizer.zero_grad()
        loss = F.cross_entropy(ddp(x[chosen]), y[chosen])
        loss.backward()
        optimizer.step()
        total[:2] += torch.tensor([loss.item() * len(chosen), len(chosen)])
    with torch.no_grad():
        total[2] = (net(x_test).argmax(1) == y_test).sum()
    total[3] = len(x_test)
    dist.all_reduce(total)
    loss = float(total[0] / total[1])
    rows.append((epoch, loss, int(total[2]), int(total[3]), time.time() - begin))
    optim_state = optimizer.state_dict()
    if rank == 0:
        print(rows[-1])
        state = {"net": net.state_dict(), "optimizer": optim_state, "rows": rows}
        torch.save(state, path)
        torch.save(net.state_dict(), options.out / "model.pth")
        with open(options.out / "metrics.csv", "w") as file:
            print("epoch,loss,correct,total,seconds", file=file)
            for row in rows:
                print(*row, sep=",", file=file)
dist.barrier()
dist.destroy_process_group()
