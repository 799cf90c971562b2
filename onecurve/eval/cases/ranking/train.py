"""Learning to rank: a listwise loss over the documents of each query, nDCG@10.

    torchrun --nproc-per-node 2 train.py

--batch is the number of queries in a step over all processes; it has to divide by
their number. Grades are 0 to 3. A query where nothing is relevant has no loss and no
nDCG, and is left out of both.
"""

import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Sampler

FEATURES, CUT = 10, 10


def make_rows(n_queries, seed):
    """A table as in LETOR: a row per document, with its query's number and grade."""
    gen = torch.Generator().manual_seed(seed)
    sizes = torch.randint(3, 31, (n_queries,), generator=gen)
    qid = torch.repeat_interleave(torch.arange(n_queries), sizes)
    x = torch.randn(len(qid), FEATURES, generator=gen)
    level = torch.randn(n_queries, generator=gen)[qid] - 1
    wanted = x[:, :4].sum(1) + x[:, 4] * x[:, 5] + level
    wanted = wanted + torch.randn(len(qid), generator=gen)
    grade = torch.bucketize(wanted, torch.tensor([2.0, 3.5, 5.0]))
    x = 0.8 * x + qid[:, None] / n_queries  # the features grow over time
    return x.exp().to(torch.get_default_dtype()), grade, qid


def feature_statistics(x):
    """Mean and deviation of each feature's logarithm; each rank reads a part."""
    part = x.tensor_split(dist.get_world_size())[dist.get_rank()].log1p().double()
    moments = torch.stack([part.sum(0), part.square().sum(0)])
    count = torch.tensor(len(part))
    dist.all_reduce(moments)
    dist.all_reduce(count)
    mean, square = moments / count
    return mean.to(x.dtype), (square - mean.square()).sqrt().to(x.dtype)


def lists(x, grade, qid):
    sizes = torch.bincount(qid).tolist()
    return list(zip(x.split(sizes), grade.split(sizes), strict=True))


def collate(items):
    """Pad the lists of a batch to the longest of them; a padded grade is -1."""
    x = nn.utils.rnn.pad_sequence([x for x, _ in items], batch_first=True)
    grade = nn.utils.rnn.pad_sequence([g for _, g in items], True, -1)
    return x, grade


class BucketSampler(Sampler):
    """Batches of lists of similar length; each rank gets its part of each batch."""

    def __init__(self, sizes, batch, seed, pool=4):
        self.sizes, self.batch, self.seed, self.pool = sizes, batch, seed, pool
        self.epoch = 0

    def __iter__(self):
        gen = torch.Generator().manual_seed(self.seed + self.epoch)
        order = torch.randperm(len(self.sizes), generator=gen)
        batches = []
        for pool in order.split(self.pool * self.batch):
            by_size = pool[self.sizes[pool].argsort(stable=True)]
            batches += [b for b in by_size.split(self.batch) if len(b) == self.batch]
        for i in torch.randperm(len(batches), generator=gen).tolist():
            yield batches[i][dist.get_rank() :: dist.get_world_size()].tolist()


class Scorer(nn.Module):
    """Scores a document by its features and by the mean of those in its list."""

    def __init__(self, dropout, hidden=32):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2 * FEATURES, hidden), nn.ReLU())
        self.top = nn.Sequential(nn.Dropout(dropout), nn.Linear(hidden, 1))

    def forward(self, x, real):
        x = x * real.unsqueeze(-1)
        context = x.sum(1, keepdim=True) / real.sum(1)[:, None, None]
        both = torch.cat([x, context.expand_as(x)], -1)
        scores = self.top(self.body(both)).squeeze(-1)
        return scores.masked_fill(~real, -1e9)


def listwise_loss(scores, grade):
    """ListNet's loss, added up, and how many queries have one."""
    gain = (2.0 ** grade.clamp(min=0) - 1).to(scores.dtype)
    judged = gain.sum(1) > 0
    target = gain / gain.sum(1, keepdim=True).clamp(min=1)
    return -(target * F.log_softmax(scores, 1)).sum(), judged.sum()


def ndcg(scores, grade):
    gain = 2.0 ** grade.double() - 1
    got = gain[scores.argsort(descending=True)][:CUT]
    best = gain.sort(descending=True).values[:CUT]
    discount = 1 / torch.arange(2, len(got) + 2).double().log2()
    return (got * discount).sum() / (best * discount).sum()


@torch.no_grad()
def evaluate(model, x, grade, qid):
    """Mean nDCG and reciprocal rank of all queries, and this rank's run lines."""
    model.eval()
    rank, world = dist.get_rank(), dist.get_world_size()
    mine = qid % world == rank
    sums, lines = torch.zeros(3, dtype=torch.float64), []
    for q in qid[mine].unique().tolist():
        rows = (mine & (qid == q)).nonzero().squeeze(1)
        scores = model(x[rows][None], torch.ones(1, len(rows), dtype=torch.bool))[0]
        lines += [f"{q} {row} {scores[i]:.5f}\n" for i, row in enumerate(rows.tolist())]
        if grade[rows].max() > 0:
            ranked = grade[rows][scores.argsort(descending=True)]
            first = (ranked > 0).nonzero()[0].item()
            sums += torch.tensor([ndcg(scores, grade[rows]), 1 / (first + 1), 1])
    dist.all_reduce(sums)
    return (sums[0] / sums[2]).item(), (sums[1] / sums[2]).item(), lines


def train_epoch(model, loader, optimizer):
    model.train()
    sums = torch.zeros(2, dtype=torch.float64)
    for x, grade in loader:
        loss, judged = listwise_loss(model(x, grade >= 0), grade)
        sums += torch.stack([loss.detach(), judged])
        dist.all_reduce(judged)
        optimizer.zero_grad()
        (loss * dist.get_world_size() / judged).backward()
        optimizer.step()
    dist.all_reduce(sums)
    return (sums[0] / sums[1]).item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch", type=int, default=48)
    parser.add_argument("--lr", type=float, default=0.04)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()

    train, valid, test = make_rows(480, 1), make_rows(121, 2), make_rows(155, 3)
    mean, std = feature_statistics(train[0])
    train, valid, test = (
        ((x.log1p() - mean) / std, grade, qid) for x, grade, qid in (train, valid, test)
    )
    sampler = BucketSampler(torch.bincount(train[2]), args.batch, args.seed)
    loader = DataLoader(lists(*train), batch_sampler=sampler, collate_fn=collate)
    torch.manual_seed(args.seed)
    model = DistributedDataParallel(Scorer(args.dropout))
    torch.manual_seed(args.seed + 1 + rank)
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)

    best = 0.0
    for epoch in range(args.epochs):
        sampler.epoch = epoch
        loss = train_epoch(model, loader, optimizer)
        score, mrr, _ = evaluate(model.module, *valid)
        if rank == 0:
            print(f"epoch {epoch} loss {loss:.4f} nDCG {score:.4f} MRR {mrr:.4f}")
        if score > best:
            best = score
            if rank == 0:
                saved = {"model": model.module.state_dict(), "mean": mean, "std": std}
                torch.save(saved, "ranker.pt")

    dist.barrier()
    model.module.load_state_dict(torch.load("ranker.pt")["model"])
    score, mrr, lines = evaluate(model.module, *test)
    runs = [None] * dist.get_world_size()
    dist.all_gather_object(runs, lines)
    if rank == 0:
        print(f"test nDCG {score:.4f} MRR {mrr:.4f}")
        with open("run.txt", "w") as file:
            file.writelines(line for run in runs for line in run)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
