"""Three tasks, one encoder: a price, a kind and a flag, each with its own samples.

    torchrun --nproc-per-node 2 train.py

A step takes a batch of every task; the short sets start again when they are used up.
The tasks are weighted by learned variances (Kendall and others). The batches of TASKS
are over all processes; only dropout differs by process.
"""

import argparse
import copy
import itertools

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

FEATURES, KINDS, PATIENCE = 20, 5, 2
# task: samples to train, to validate and to test, batch, outputs of the head
TASKS = {
    "price": ((384, 151, 203), 64, 1),
    "kind": ((180, 121, 155), 32, KINDS),
    "flag": ((75, 91, 95), 24, 1),
}
BCE = F.binary_cross_entropy_with_logits
LOSSES = {"price": F.mse_loss, "kind": F.cross_entropy, "flag": BCE}


def make_task(name, sizes):
    """Inputs and targets of a task, as a TensorDataset per split."""
    truth = torch.Generator().manual_seed(5)
    inner = torch.randn(FEATURES, 8, generator=truth) / 3
    outer = torch.randn(8, KINDS + 2, generator=truth)
    rng = torch.Generator().manual_seed(10 + list(TASKS).index(name))
    x = torch.randn(sum(sizes), FEATURES, generator=rng)
    y = (x @ inner).tanh() @ outer
    y += 0.3 * torch.randn(y.shape, generator=rng)
    if name == "price":
        y = y[:, KINDS]
        y = (y - y[: sizes[0]].mean()) / y[: sizes[0]].std()
    elif name == "kind":
        y = (y[:, :KINDS] + torch.linspace(0, 1.5, KINDS)).argmax(1)
    else:
        y = (y[:, -1] > 0.8).to(x.dtype)
    return map(TensorDataset, x.split(sizes), y.split(sizes))


def metric(name, out, y):
    """R2 of the price, macro F1 of the kind, area under the curve of the flag."""
    if name == "price":
        return 1 - F.mse_loss(out, y) / y.var(correction=0)
    if name == "kind":
        guess, y = F.one_hot(out.argmax(1), KINDS), F.one_hot(y, KINDS)
        hits = (guess & y).sum(0)
        return (2 * hits / (guess.sum(0) + y.sum(0)).clamp(min=1)).mean()
    yes, no = out[y == 1], out[y == 0]
    return (yes[:, None] > no).to(out.dtype).mean()


class MultiTask(nn.Module):
    def __init__(self, dropout, hidden=48):
        super().__init__()
        first = nn.Linear(FEATURES, hidden), nn.LayerNorm(hidden), nn.GELU()
        second = nn.Dropout(dropout), nn.Linear(hidden, hidden), nn.GELU()
        self.encoder = nn.Sequential(*first, *second)
        self.heads = nn.ModuleDict()
        for name, (_, _, outputs) in TASKS.items():
            self.heads[name] = nn.Linear(hidden, outputs)

    def forward(self, inputs):
        hidden = {name: self.encoder(x) for name, x in inputs.items()}
        return {name: self.heads[name](h).squeeze(1) for name, h in hidden.items()}


def make_loader(dataset, batch):
    sampler = DistributedSampler(dataset)
    share = batch // dist.get_world_size()
    return DataLoader(dataset, share, sampler=sampler, drop_last=True)


def endless(loader):
    for turn in itertools.count():
        loader.sampler.set_epoch(turn)
        yield from loader


def train_epoch(net, log_var, streams, optimizer, steps):
    """Return the mean losses of the tasks on this process."""
    net.train()
    means = torch.zeros(len(TASKS))
    for _ in range(steps):
        batches = {name: next(stream) for name, stream in streams.items()}
        outputs = net({name: x for name, (x, _) in batches.items()})
        losses = [LOSSES[name](outputs[name], batches[name][1]) for name in TASKS]
        losses = torch.stack(losses)
        loss = ((-log_var).exp() * losses + log_var).sum()
        optimizer.zero_grad()
        loss.backward()
        dist.all_reduce(log_var.grad)
        log_var.grad /= dist.get_world_size()
        nn.utils.clip_grad_norm_(net.parameters(), 2.0)
        optimizer.step()
        means += losses.detach() / steps
    return means


@torch.no_grad()
def evaluate(model, datasets):
    """{task: its metric} on all samples of all processes."""
    rank, world = dist.get_rank(), dist.get_world_size()
    model.eval()
    found = {}
    for name, dataset in datasets.items():
        x, y = (column[rank::world] for column in dataset.tensors)
        out = model({name: x})[name]
        parts = [None] * world
        dist.all_gather_object(parts, (out, y))
        out, y = (torch.cat(column) for column in zip(*parts, strict=True))
        found[name] = metric(name, out, y).item()
    return found


def show(values):
    return ", ".join(f"{k} {v:.4f}" for k, v in zip(TASKS, values, strict=True))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--frozen", type=int, default=1, help="epochs of heads only")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--lr", type=float, default=0.2)
    parser.add_argument("--seed", type=int, default=7)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()

    train, valid, test = {}, {}, {}
    for name, (sizes, _, _) in TASKS.items():
        train[name], valid[name], test[name] = make_task(name, sizes)
    loaders = {name: make_loader(train[name], TASKS[name][1]) for name in TASKS}
    steps = max(map(len, loaders.values()))
    streams = {name: endless(loader) for name, loader in loaders.items()}
    torch.manual_seed(args.seed)
    model = MultiTask(args.dropout)
    model.encoder.requires_grad_(False)
    net = DDP(model)
    log_var = nn.Parameter(torch.zeros(len(TASKS)))
    torch.manual_seed(1000 * args.seed + rank)
    groups = [{"params": model.parameters()}, {"params": log_var, "weight_decay": 0.0}]
    optimizer = torch.optim.SGD(groups, lr=args.lr, momentum=0.9, weight_decay=1e-3)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, factor=0.5, patience=0, threshold=0.1
    )

    best, waited, kept = float("-inf"), 0, None
    for epoch in range(args.epochs):
        if epoch == args.frozen:
            model.encoder.requires_grad_(True)
            net = DDP(model)
        losses = train_epoch(net, log_var, streams, optimizer, steps)
        dist.all_reduce(losses)
        losses /= world
        plateau.step(losses.sum())
        metrics = evaluate(model, valid)
        score = sum(metrics.values()) / len(metrics)
        if rank == 0:
            print(f"epoch {epoch}  loss: {show(losses.tolist())}")
            print(f"  valid: {show(metrics.values())}; all {score:.4f}")
        waited += 1
        if score > best:
            best, waited = score, 0
            kept = copy.deepcopy((model.state_dict(), log_var.detach()))
        if waited == PATIENCE:
            break

    state, log_var = kept
    model.load_state_dict(state)
    metrics = evaluate(model, test)
    if rank == 0:
        print(f"test: {show(metrics.values())}")
        print(f"weights: {show((-log_var).exp().tolist())}")
        torch.save({"model": state, "log_var": log_var}, "multitask.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
