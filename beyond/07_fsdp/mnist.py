"""Train a small network on MNIST. The README.md in this folder explains it."""

import argparse
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint.state_dict as dcp_state
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
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
        return self.layers(images / 255)


def train_epoch(model, loader, optimizer):
    """Take one step per batch; return the mean loss over all images."""
    model.train()
    loss_sum, count = 0, 0
    if dist.get_rank() == 0:
        loader = tqdm(loader, leave=False, disable=None)
    for images, labels in loader:
        images, labels = images.to(DEVICE), labels.to(DEVICE)
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
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
    correct = 0
    # A forward pass is a collective here: every rank needs the same number of batches.
    steps = torch.tensor(len(dataset) // 1000 + 1, device=DEVICE)
    dist.all_reduce(steps, dist.ReduceOp.MAX)
    batches = torch.arange(len(dataset)).tensor_split(steps.item())
    for images, labels in DataLoader(dataset, batch_sampler=batches):
        images, labels = images.to(DEVICE), labels.to(DEVICE)
        correct += (model(images).argmax(dim=1) == labels).sum().item()
    counts = torch.tensor([correct, len(dataset)], device=DEVICE)
    dist.all_reduce(counts)
    return counts.tolist()


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
    """Gather the weights from all ranks; rank 0 writes them as CPU tensors."""
    options = dcp_state.StateDictOptions(full_state_dict=True, cpu_offload=True)
    weights = dcp_state.get_model_state_dict(model, options=options)
    if dist.get_rank() == 0:
        torch.save(weights, path)
        print(f"saved {path}")


def main(args):
    if not (args.data / "MNIST").is_dir():
        raise SystemExit(f"no MNIST in {args.data}: run 'make data', or name --data")
    if "RANK" not in os.environ:
        raise SystemExit(f"start it with torchrun --nproc-per-node=2 {__file__}")
    rank = int(os.environ["RANK"])
    world_size = int(os.environ["WORLD_SIZE"])
    if args.batch_size % world_size:
        raise SystemExit(f"--batch-size must be a multiple of {world_size} (processes)")
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
    shard = torch.utils.data.Subset(test, range(rank, len(test), world_size))
    sampler = DistributedSampler(train, seed=args.seed)
    loader = DataLoader(train, args.batch_size // world_size, sampler=sampler)

    # The model: the same seed gives the same initial weights in every stage.
    torch.manual_seed(args.seed)
    model = Net(args.hidden).to(DEVICE)
    mesh = dist.init_device_mesh(DEVICE, (world_size,))
    for module in (model.layers[1], model.layers[3], model):
        fully_shard(module, mesh=mesh)  # each rank keeps its part
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    sizes = f"{args.batch_size} images a step, {len(train)} train, {len(test)} test"
    if rank == 0:
        print(f"{STAGE}: {world_size} processes on {DEVICE} ({args.backend}), {sizes}")

    # The loop: seeded by the epoch, the order is new each time and equal in all stages.
    for epoch in range(1, args.epochs + 1):
        start = time.perf_counter()
        sampler.set_epoch(epoch)  # without it, every epoch has the same order
        loss = train_epoch(model, loader, optimizer)
        correct, total = evaluate(model, shard)
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
    backend = "nccl" if DEVICE == "cuda" else "gloo"
    parser.add_argument("--backend", default=backend, help="nccl or gloo")
    return parser.parse_args()


if __name__ == "__main__":
    main(parse_args())
    dist.barrier()  # else gloo may still hold tensors when Python ends
    dist.destroy_process_group()
