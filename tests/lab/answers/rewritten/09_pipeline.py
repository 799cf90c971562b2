"""Stage 9 from scratch: no data loader, and a network of its own for each half."""

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
parser.add_argument("--micro-batches", default=4, type=int)
parser.add_argument("--lr", default=0.1, type=float)
parser.add_argument("--hidden", default=128, type=int)
parser.add_argument("--seed", default=0, type=int)
parser.add_argument("--data", default="data/mnist")
parser.add_argument("--out", default="runs/rewritten", type=pathlib.Path)
parser.add_argument("--backend", default="gloo")
options = parser.parse_args()
options.out.mkdir(parents=True, exist_ok=True)

dist.init_process_group(options.backend)
rank = dist.get_rank()


def load(train):
    digits = torchvision.datasets.MNIST(options.data, train=train)
    pixels = digits.data.to(torch.get_default_dtype()).div(255).flatten(1)
    return pixels, digits.targets


def receive(count):
    received = torch.empty(count, options.hidden)
    dist.recv(received, 0)
    return received


x, y = load(True)
x_test, y_test = load(False)
torch.manual_seed(options.seed)
first = torch.nn.Sequential(torch.nn.Linear(784, options.hidden), torch.nn.ReLU())
second = torch.nn.Linear(options.hidden, 10)
net = second if rank else first
optimizer = torch.optim.SGD(net.parameters(), options.lr)
rows = ["epoch,loss,correct,total,seconds"]
for epoch in range(1, options.epochs + 1):
    begin, total = time.time(), torch.zeros(2)
    generator = torch.Generator().manual_seed(options.seed + epoch)
    for chosen in torch.randperm(len(x), generator=generator).split(options.batch_size):
        optimizer.zero_grad()
        parts = chosen.chunk(options.micro_batches)
        if rank == 0:
            outputs = [net(x[part]) for part in parts]
            for hidden in outputs:
                dist.send(hidden.detach(), 1)
            for hidden in outputs:
                gradient = torch.empty_like(hidden)
                dist.recv(gradient, 1)
                hidden.backward(gradient)
        else:
            in_flight = [receive(len(part)).requires_grad_() for part in parts]
            for received, part in zip(in_flight, parts, strict=True):
                loss = F.cross_entropy(net(received), y[part])
                loss = loss * len(part) / len(chosen)
                loss.backward()
                dist.send(received.grad, 0)
                total[0] += loss.item() * len(chosen)
        optimizer.step()
    with torch.no_grad():
        if rank == 0:
            dist.send(net(x_test), 1)
        else:
            total[1] = (net(receive(len(x_test))).argmax(1) == y_test).sum()
    dist.broadcast(total, 1)
    loss, correct = float(total[0]) / len(x), int(total[1])
    rows.append(f"{epoch},{loss},{correct},{len(x_test)},{time.time() - begin}")
states = [None, None]
dist.all_gather_object(states, net.state_dict())
if rank == 0:
    print(*rows, sep="\n")
    (options.out / "metrics.csv").write_text("\n".join(rows) + "\n")
    state = {
        f"{n}.{key}": t for n, part in enumerate(states) for key, t in part.items()
    }
    torch.save(state, options.out / "model.pth")
dist.barrier()
dist.destroy_process_group()
