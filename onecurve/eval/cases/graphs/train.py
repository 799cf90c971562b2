"""Tell kinds of graphs apart: a graph network, rare classes drawn more often.

    torchrun --nproc-per-node 2 train.py

The processes average their gradients by hand, without a wrapper.
"""

import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Sampler

KINDS, FEATURES = ["ring", "path", "star", "twin"], 6


def make_graph(kind, g):
    """Node features and edges, in both directions."""
    n = int(torch.randint(6, 18, (1,), generator=g))
    i = torch.arange(n)
    if kind == 0:
        edges = torch.stack([i, (i + 1) % n])
    elif kind == 1:
        edges = torch.stack([i[:-1], i[1:]])
    elif kind == 2:
        edges = torch.stack([torch.zeros_like(i[1:]), i[1:]])
    else:  # two rings with a bridge
        half = n // 2
        ends = torch.cat(
            [(i[:half] + 1) % half, half + (i[half:] - half + 1) % (n - half)]
        )
        edges = torch.stack([i, ends])
        edges = torch.cat([edges, torch.tensor([[0], [half]])], 1)
    extra = torch.randint(n, (2, 2), generator=g)
    edges = torch.cat([edges, extra], 1)
    features = torch.randn(n, FEATURES, generator=g)
    return features, torch.cat([edges, edges.flip(0)], 1), kind


def make_graphs(n, seed):
    g = torch.Generator().manual_seed(seed)
    shares = torch.tensor([0.55, 0.25, 0.12, 0.08])
    kinds = torch.multinomial(shares, n, replacement=True, generator=g)
    return [make_graph(kind, g) for kind in kinds.tolist()]


def collate(graphs):
    """One large graph of many; `owner` tells to which one a node belongs."""
    features, edges, kinds = zip(*graphs, strict=True)
    sizes = torch.tensor([len(one) for one in features])
    starts = (sizes.cumsum(0) - sizes).tolist()
    moved = [one + start for one, start in zip(edges, starts, strict=True)]
    owner = torch.arange(len(sizes)).repeat_interleave(sizes)
    return torch.cat(features), torch.cat(moved, 1), owner, torch.tensor(kinds)


class BalancedSampler(Sampler):
    """All ranks draw the same graphs, rare kinds more often, and share them out."""

    def __init__(self, kinds, n, seed):
        counts = torch.bincount(kinds).double()
        self.weights = 1 / counts[kinds]
        self.n, self.seed, self.epoch = n, seed, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return self.n // dist.get_world_size()

    def __iter__(self):
        g = torch.Generator().manual_seed(100 * self.seed + self.epoch)
        drawn = torch.multinomial(self.weights, self.n, replacement=True, generator=g)
        mine = drawn[dist.get_rank() :: dist.get_world_size()]
        return iter(mine.tolist())


class GraphNet(nn.Module):
    def __init__(self, dropout, dim=24, layers=3):
        super().__init__()
        self.enter = nn.Linear(FEATURES + 1, dim)
        self.layers = nn.ModuleList(nn.Linear(2 * dim, dim) for _ in range(layers))
        self.norms = nn.ModuleList(nn.BatchNorm1d(dim) for _ in range(layers))
        self.drop = nn.Dropout(dropout)
        self.head = nn.Linear(2 * dim, len(KINDS))

    def forward(self, features, edges, owner, n_graphs):
        ones = features.new_ones(edges.shape[1], 1)
        degree = features.new_zeros(len(features), 1).index_add(0, edges[1], ones)
        x = self.enter(torch.cat([features, degree], 1))
        for layer, norm in zip(self.layers, self.norms, strict=True):
            near = torch.zeros_like(x).index_add(0, edges[1], x[edges[0]])
            x = norm(layer(torch.cat([x, near], 1))).relu()
        total = x.new_zeros(n_graphs, x.shape[1]).index_add(0, owner, x)
        sizes = torch.bincount(owner, minlength=n_graphs).unsqueeze(1)
        return self.head(self.drop(torch.cat([total, total / sizes], 1)))


@torch.no_grad()
def average(tensors):
    for tensor in tensors:
        dist.all_reduce(tensor)
        tensor /= dist.get_world_size()


def float_buffers(net):
    return [buffer for buffer in net.buffers() if buffer.is_floating_point()]


@torch.no_grad()
def evaluate(net, graphs):
    """The share of right answers, and its mean over the kinds."""
    net.eval()
    mine = graphs[dist.get_rank() :: dist.get_world_size()]
    right, count = torch.zeros(2, len(KINDS), dtype=torch.long)
    for features, edges, owner, kinds in DataLoader(mine, 32, collate_fn=collate):
        hit = net(features, edges, owner, len(kinds)).argmax(1) == kinds
        right += torch.bincount(kinds[hit], minlength=len(KINDS))
        count += torch.bincount(kinds, minlength=len(KINDS))
    dist.all_reduce(right)
    dist.all_reduce(count)
    return (right.sum() / count.sum()).item(), (right / count).mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch", type=int, default=32, help="over all processes")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()

    train, test = make_graphs(600, 1), make_graphs(301, 2)
    sampler = BalancedSampler(
        torch.tensor([kind for *_, kind in train]), 640, args.seed
    )
    loader = DataLoader(train, args.batch // world, sampler=sampler, collate_fn=collate)
    torch.manual_seed(args.seed + rank)  # the ranks drop other values
    net = GraphNet(args.dropout)
    for tensor in net.state_dict().values():
        dist.broadcast(tensor, src=0)
    optimizer = torch.optim.SGD(net.parameters(), lr=args.lr, momentum=0.9)

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        net.train()
        total = torch.zeros(2)
        for features, edges, owner, kinds in loader:
            out = net(features, edges, owner, len(kinds))
            loss = F.cross_entropy(out, kinds)
            optimizer.zero_grad()
            loss.backward()
            average([weights.grad for weights in net.parameters()])
            optimizer.step()
            total += torch.tensor([loss.item() * len(kinds), len(kinds)])
        dist.all_reduce(total)
        average(float_buffers(net))  # each rank has seen other graphs
        overall, balanced = evaluate(net, test)
        if rank == 0:
            loss = total[0] / total[1]
            print(f"{epoch}  loss {loss:.4f}  acc {overall:.4f}  bal {balanced:.4f}")
    if rank == 0:
        torch.save(net.state_dict(), "graphs.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
