"""Train a small network on MNIST. The README.md in this folder explains it."""

import argparse
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchvision import datasets
from tqdm import tqdm

STAGE = Path(__file__).resolve().parent.name
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Net(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(784, hidden), nn.ReLU(), nn.Linear(hidden, 10)
        )

    def forward(self, images):  # N x 28 x 28, uint8
        """Return what this rank's half takes in and what it puts out."""
        if dist.get_rank() == 0:
            output = self.layers[:3](images / 255)
            dist.send(output.detach(), 1)
            return images, output
        received = torch.empty(len(images), self.layers[3].in_features, device=DEVICE)
        dist.recv(received, 0)
        return received, self.layers[3:](received.requires_grad_())


def train_epoch(model, loader, optimizer, micro_batches):
    """Take one step per batch; return the mean loss over all images."""
    model.train()
    loss_sum = torch.zeros((), dtype=torch.float64, device=DEVICE)
    count = 0
    if dist.get_rank() == 0:
        loader = tqdm(loader, leave=False, disable=None)
    for images, labels in loader:
        images, labels = images.to(DEVICE), labels.to(DEVICE)
        optimizer.zero_grad()
        in_flight = [model(piece) for piece in images.chunk(micro_batches)]
        targets = labels.chunk(micro_batches)
        for (received, output), target in zip(in_flight, targets, strict=True):
            if dist.get_rank() == 0:
                gradient = torch.empty_like(output)
                dist.recv(gradient, 1)
                output.backward(gradient)
            else:
                loss = nn.functional.cross_entropy(output, target, reduction="sum")
                (loss / len(labels)).backward()  # its part of the mean over the batch
                dist.send(received.grad, 0)
                loss_sum += loss.detach()
        optimizer.step()
        count += len(labels)
    dist.broadcast(loss_sum, 1)
    return (loss_sum / count).item()


@torch.no_grad()
def evaluate(model, dataset):
    """Return how many images the model classifies correctly, and out of how many."""
    model.eval()
    correct = torch.tensor(0, device=DEVICE)
    for images, labels in DataLoader(dataset, batch_size=1000):
        images, labels = images.to(DEVICE), labels.to(DEVICE)
        _, output = model(images)
        if dist.get_rank() == 1:
            correct += (output.argmax(dim=1) == labels).sum()
    dist.broadcast(correct, 1)
    return correct.item(), len(dataset)


def report(args, epoch, loss, correct, total, start):
    """Print an epoch's results and append them to metrics.csv; it began at `start`."""
    seconds = time.perf_counter() - start
    result = f"loss {loss:.6f}  test {correct}/{total}  {seconds:.2f} s"
    print(f"epoch {epoch}/{args.epochs}  {result}")
    with open(args.out / "metrics.csv", "w" if epoch == 1 else "a") as file:
        if epoch == 1:
            print("epoch,loss,correct,total,seconds", file=file)
        print(epoch, loss, correct, total, seconds, sep=",", file=file)


def save(model, path):
    """Gather the weights from both ranks; rank 0 writes them as CPU tensors."""
    half = {
        name: tensor.cpu()
        for name, tensor in model.state_dict().items()
        if not tensor.is_meta
    }
    halves = [None, None]
    dist.all_gather_object(halves, half)
    if dist.get_rank() == 0:
        torch.save(halves[0] | halves[1], path)
        print(f"saved {path}")


def main(args):
    if not (args.data / "MNIST").is_dir():
        raise SystemExit(f"no MNIST in {args.data}: run 'make data', or name --data")
    if os.environ.get("WORLD_SIZE") != "2":
        raise SystemExit(f"start it with torchrun --nproc-per-node=2 {__file__}")
    rank = int(os.environ["RANK"])
    world_size = int(os.environ["WORLD_SIZE"])
    args.out.mkdir(parents=True, exist_ok=True)

    # The processes: each one takes its own GPU and joins the process group.
    if DEVICE == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    dist.init_process_group(args.backend)

    # The data: pixels stay bytes, a quarter of the memory; the network scales them.
    mnist = datasets.MNIST(args.data, train=True)
    train = TensorDataset(mnist.data, mnist.targets)
    mnist = datasets.MNIST(args.data, train=False)
    test = TensorDataset(mnist.data, mnist.targets)
    loader = DataLoader(train, args.batch_size, shuffle=True)

    # The model: the same seed gives the same initial weights in every stage.
    torch.manual_seed(args.seed)
    model = Net(args.hidden).to(DEVICE)
    others = model.layers[3:] if rank == 0 else model.layers[:3]
    others.to("meta")  # frees the memory of the other rank's half
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    sizes = f"{args.batch_size} images a step, {len(train)} train, {len(test)} test"
    if rank == 0:
        print(f"{STAGE}: {world_size} processes on {DEVICE} ({args.backend}), {sizes}")

    # The loop: seeded by the epoch, the order is new each time and equal in all stages.
    for epoch in range(1, args.epochs + 1):
        start = time.perf_counter()
        loader.sampler.generator = torch.Generator().manual_seed(args.seed + epoch)
        loss = train_epoch(model, loader, optimizer, args.micro_batches)
        correct, total = evaluate(model, test)
        if rank == 0:
            report(args, epoch, loss, correct, total, start)
    save(model, args.out / "model.pth")


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3, help="passes over the images")
    parser.add_argument("--batch-size", type=int, default=64, help="global batch size")
    parser.add_argument("--lr", type=float, default=0.1, help="SGD learning rate")
    parser.add_argument("--hidden", type=int, default=128, help="width of hidden layer")
    parser.add_argument("--seed", type=int, default=0, help="of weights and shuffling")
    parser.add_argument("--data", type=Path, default="data/sample", help="MNIST root")
    parser.add_argument("--out", type=Path, default=f"runs/{STAGE}", help="results")
    parser.add_argument("--micro-batches", type=int, default=4, help="per batch")
    backend = "nccl" if DEVICE == "cuda" else "gloo"
    parser.add_argument("--backend", default=backend, help="nccl or gloo")
    return parser.parse_args()


if __name__ == "__main__":
    main(parse_args())
    dist.barrier()  # else gloo may still hold tensors when Python ends
    dist.destroy_process_group()
