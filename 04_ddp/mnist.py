"""Train a small network on MNIST. The README.md beside this script explains it."""
import argparse
import os
import sys
import time
from pathlib import Path
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler
from torchvision import datasets
from tqdm import tqdm

STAGE = Path(__file__).resolve().parent.name
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class MNIST(datasets.MNIST):
    def __getitems__(self, indices):  # images, N x 28 x 28 in [0, 1], and N labels
        return self.data[indices] / 255, self.targets[indices]


class Net(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(784, hidden), nn.ReLU(), nn.Linear(hidden, 10))
    def forward(self, images):
        return self.layers(images)


def train_epoch(model, loader, optimizer):
    """Take one step per batch; return the mean loss over all images."""
    model.train()
    loss_sum = 0
    for images, labels in tqdm(loader, leave=False, disable=dist.get_rank() or None):
        images, labels = images.to(DEVICE), labels.to(DEVICE)
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss_sum += loss.detach().double() * len(labels)
    dist.all_reduce(loss_sum)
    return (loss_sum / loader.sampler.total_size).item()


@torch.no_grad()
def evaluate(model, loader):
    """Return how many images the model classifies correctly, and out of how many."""
    model.eval()
    correct = 0
    for images, labels in loader:
        images, labels = images.to(DEVICE), labels.to(DEVICE)
        correct += (model(images).argmax(dim=1) == labels).sum().item()
    return correct, len(loader.sampler)


def main(args):
    assert "RANK" in os.environ, f"start it by torchrun --nproc-per-node=2 {__file__}"
    gpus = torch.cuda.device_count()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % gpus if gpus else -1)
    backend = "nccl" if gpus >= int(os.environ["LOCAL_WORLD_SIZE"]) else "gloo"
    dist.init_process_group(backend)
    rank, world_size = dist.get_rank(), dist.get_world_size()
    sys.stdout = sys.stdout if rank == 0 else open(os.devnull, "w")  # rank 0 prints
    assert args.epochs > 0 and args.batch_size > 0, "--epochs, --batch-size: at least 1"
    assert (args.data / "MNIST").is_dir(), f"no MNIST in {args.data}: run 'make data'"
    args.out.mkdir(parents=True, exist_ok=True)
    train, test = MNIST(args.data), MNIST(args.data, train=False)
    test_loader = DataLoader(test, 1000, collate_fn=tuple)
    torch.manual_seed(args.seed)
    model = Net(args.hidden)
    model.to(DEVICE)
    twice = f", {n} images twice" if (n := -len(train) % world_size) else ""
    print(f"{STAGE}: {world_size} processes on {DEVICE} ({backend}{twice}), "
          f"{args.batch_size} images a step, {len(train)} train, {len(test)} test")
    share, rest = divmod(args.batch_size, world_size)
    assert not rest, (f"--batch-size must be a multiple of {world_size} processes, "
                      f"{max(share, 1) * world_size} or {(share + 1) * world_size}")
    sampler = DistributedSampler(train, seed=args.seed)
    train_loader = DataLoader(train, share, sampler=sampler, collate_fn=tuple)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    metrics = "epoch,loss,correct,total,seconds\n"
    if args.resume and (args.out / "state.pth").exists():
        weights, moments, metrics = torch.load(args.out / "state.pth", "cpu")
        model.load_state_dict(weights)
        optimizer.load_state_dict(moments)
    model = nn.parallel.DistributedDataParallel(model)
    for epoch in range(metrics.count("\n"), args.epochs + 1):
        start = time.perf_counter()
        sampler.set_epoch(epoch)
        loss = train_epoch(model, train_loader, optimizer)
        if rank > 0: continue  # rank 0 alone does the rest
        correct, total = evaluate(model.module, test_loader)
        print(f"epoch {epoch}/{args.epochs}  loss {loss:.6f}  "
              f"test {correct}/{total}  {time.perf_counter() - start:.2f} s")
        metrics += f"{epoch},{loss},{correct},{total},{time.perf_counter() - start}\n"
        (args.out / "metrics.tmp").write_text(metrics)
        (args.out / "metrics.tmp").replace(args.out / "metrics.csv")
        weights = {key: value.cpu() for key, value in model.module.state_dict().items()}
        state = weights, optimizer.state_dict(), metrics
        for name, content in ("model", weights), ("state", state):
            with open(args.out / f"{name}.tmp", "wb", 1 << 28) as file:
                torch.save(content, file)  # from memory: a full disk is an OSError
            (args.out / f"{name}.tmp").replace(args.out / f"{name}.pth")
    print(f"saved {args.out / 'model.pth'}")


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, exit_on_error=False)
    parser.add_argument("--epochs", type=int, default=3, help="passes over the images")
    parser.add_argument("--batch-size", type=int, default=64, help="over all devices")
    parser.add_argument("--lr", type=float, default=0.1, help="SGD learning rate")
    parser.add_argument("--hidden", type=int, default=128, help="width of hidden layer")
    parser.add_argument("--seed", type=int, default=0, help="of weights and shuffling")
    parser.add_argument("--data", type=Path, default="data/mnist", help="MNIST root")
    parser.add_argument("--out", type=Path, default=f"runs/{STAGE}", help="results")
    parser.add_argument("--resume", action="store_true", help="go on where it stopped")
    return parser.parse_args()


if __name__ == "__main__":
    try:
        main(parse_args())
        dist.destroy_process_group()
    except (AssertionError, OSError, argparse.ArgumentError, KeyboardInterrupt) as why:
        time.sleep(5 * int(os.environ.get("RANK", "0")))  # rank 0 speaks first
        sys.exit(f"{STAGE}: {str(why) or 'stopped'}")
