"""Train a small network on MNIST. The README.md beside this script explains it."""

import argparse
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import distribute_tensor
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, TensorDataset
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

    def forward(self, images):  # N x 28 x 28 bytes
        return self.layers(images / 255)


def train_epoch(model, loader, optimizer):
    """Take one step per batch; return the mean loss over all images."""
    model.train()
    loss_sum, count = 0, 0
    if dist.get_rank() == 0:
        loader = tqdm(loader, leave=False, disable=None)  # None: in a terminal only
    for images, labels in loader:
        images, labels = images.to(DEVICE), labels.to(DEVICE)
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss_sum += loss.detach().double() * len(labels)
        count += len(labels)
    dist.all_reduce(loss_sum)
    count *= dist.get_world_size()  # each rank has had as many images
    return loss_sum.item() / count


@torch.no_grad()
def evaluate(model, dataset):
    """Return how many images the model classifies correctly, and out of how many."""
    model.eval()
    correct = 0
    for images, labels in DataLoader(dataset, batch_size=len(dataset)):  # one batch
        images, labels = images.to(DEVICE), labels.to(DEVICE)
        correct += (model(images).argmax(dim=1) == labels).sum().item()
    counts = torch.tensor([correct, len(dataset)], device=DEVICE)
    dist.all_reduce(counts)
    return counts.tolist()


def save(folder, weights, optimizer, history):
    """Rename the files once they are whole: a run may be killed at any moment."""
    state = {"model": weights, "optimizer": optimizer, "history": history}
    torch.save(weights, folder / "model.pth.tmp")
    torch.save(state, folder / "state.pth.tmp")
    with open(folder / "metrics.csv.tmp", "w") as file:
        for row in [("epoch", "loss", "correct", "total", "seconds"), *history]:
            print(*row, sep=",", file=file)
    for name in "model.pth", "metrics.csv", "state.pth":
        os.replace(folder / f"{name}.tmp", folder / name)


def main(args):
    if not (args.data / "MNIST").is_dir():
        raise SystemExit(f"no MNIST in {args.data}: run 'make data'")
    if "RANK" not in os.environ:
        raise SystemExit(f"start it by torchrun --nproc-per-node=2 {__file__}")
    gpus = torch.cuda.device_count() if DEVICE == "cuda" else 0
    if gpus:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % gpus)
    backend = "nccl" if gpus >= int(os.environ["LOCAL_WORLD_SIZE"]) else "gloo"
    if gpus and backend == "gloo":
        raise SystemExit(f"each process needs a GPU of its own: here are {gpus}")
    dist.init_process_group(backend)
    rank, world_size = dist.get_rank(), dist.get_world_size()
    args.out.mkdir(parents=True, exist_ok=True)
    parts = datasets.MNIST(args.data), datasets.MNIST(args.data, train=False)
    train, test = (TensorDataset(part.data, part.targets) for part in parts)
    shard = torch.utils.data.Subset(test, range(rank, len(test), world_size))
    torch.manual_seed(args.seed)
    model = Net(args.hidden).to(DEVICE)
    if args.checkpoint:
        weights = torch.load(args.checkpoint, map_location="cpu", weights_only=True)
        model.load_state_dict(weights)
        correct, total = evaluate(model, shard)
        if rank == 0:
            print(f"{args.checkpoint}  test {correct}/{total}")
        return
    if args.batch_size % world_size:
        raise SystemExit(f"--batch-size must be a multiple of {world_size} (processes)")
    sampler = DistributedSampler(train, seed=args.seed)
    batches = BatchSampler(sampler, args.batch_size // world_size, drop_last=False)
    loader = DataLoader(train, batch_size=None, sampler=batches)  # takes whole batches
    last, history = None, []
    if args.resume and (args.out / "state.pth").exists():
        last = torch.load(args.out / "state.pth", map_location="cpu", weights_only=True)
    states = [last]
    dist.broadcast_object_list(states)  # what rank 0 has found
    last = states[0]
    if last:
        model.load_state_dict(last["model"])
    mesh = dist.init_device_mesh(DEVICE, (world_size,))
    for layer in [*model.layers, model]:
        fully_shard(layer, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    if last:
        optimizer.load_state_dict(last["optimizer"])
        for p, state in optimizer.state.items():
            for n, t in state.items():
                state[n] = distribute_tensor(t, mesh, p.placements, src_data_rank=None)
        history = last["history"]
    sizes = f"{args.batch_size} images a step, {len(train)} train, {len(test)} test"
    twice = sampler.total_size - len(train)
    note = f"{backend}, {twice} images twice" if twice else backend
    if rank == 0:
        print(f"{STAGE}: {world_size} processes on {DEVICE} ({note}), {sizes}")
    for epoch in range(len(history) + 1, args.epochs + 1):
        start = time.perf_counter()
        sampler.set_epoch(epoch)
        loss = train_epoch(model, loader, optimizer)
        correct, total = evaluate(model, shard)
        weights = {n: t.full_tensor().cpu() for n, t in model.state_dict().items()}
        moments = optimizer.state_dict()
        for i, state in moments["state"].items():
            moments["state"][i] = {n: t.full_tensor().cpu() for n, t in state.items()}
        if rank > 0:
            continue  # rank 0 alone prints and saves
        seconds = time.perf_counter() - start
        result = f"loss {loss:.6f}  test {correct}/{total}  {seconds:.2f} s"
        print(f"epoch {epoch}/{args.epochs}  {result}")
        history.append((epoch, loss, correct, total, seconds))
        save(args.out, weights, moments, history)
        if epoch == args.epochs:
            print(f"saved {args.out / 'model.pth'}")


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3, help="passes over the images")
    parser.add_argument("--batch-size", type=int, default=64, help="over all devices")
    parser.add_argument("--lr", type=float, default=0.1, help="SGD learning rate")
    parser.add_argument("--hidden", type=int, default=128, help="width of hidden layer")
    parser.add_argument("--seed", type=int, default=0, help="of weights and shuffling")
    parser.add_argument("--data", type=Path, default="data/mnist", help="MNIST root")
    parser.add_argument("--out", type=Path, default=f"runs/{STAGE}", help="results")
    parser.add_argument("--resume", action="store_true", help="go on where it stopped")
    parser.add_argument("--checkpoint", type=Path, help="evaluate it, do not train")
    return parser.parse_args()


if __name__ == "__main__":
    main(parse_args())
    dist.barrier()  # else gloo may still hold tensors when Python ends
    dist.destroy_process_group()
