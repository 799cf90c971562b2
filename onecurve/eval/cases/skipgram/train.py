"""Word vectors by skip-gram with negative sampling, on all ranks of a process group.

    torchrun --nproc-per-node=2 train.py

The corpus lies in shards of token ids, a sentence a row. Every epoch the shards are
dealt out anew to the workers of all ranks. They are not of one size, so the ranks run
out of pairs at different times: who has none left takes part with an empty batch.

As in word2vec the loss is a sum over pairs, so a step is the sum of what the ranks
found, and the learning rate falls linearly with the words read by everybody.
"""

import os
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

SEED = 17
SHARDS = 11
TOPICS, FORMS, HINTS, COMMON = 12, 5, 4, 60
VOCAB = TOPICS * FORMS + (TOPICS + FORMS) * HINTS + COMMON
LENGTH = 16  # words of a sentence
WINDOW = 4
NEGATIVES = 5
DIM = 32
SENTENCES = 32  # in a step, of all ranks
SUBSAMPLE = 2e-3
LR, MIN_LR = 0.05, 1e-4
EPOCHS, PATIENCE = 5, 2
WORKERS = 2

HERE = Path("w2v")
BEST, LOG = HERE / "best.pt", HERE / "log.csv"


def write_corpus(folder):
    """Write the shards: sentences on a topic in a form, with hints of both and filler."""
    rng = np.random.default_rng(SEED)
    hints = TOPICS * FORMS
    common = VOCAB - COMMON
    zipf = 1 / np.arange(1, COMMON + 1)
    for shard in range(SHARDS):
        size = rng.integers(80, 180)
        topic = rng.integers(TOPICS, size=(size, 1))
        form = rng.integers(FORMS, size=(size, 1))
        shape = (size, LENGTH)
        choices = [
            np.broadcast_to(topic * FORMS + form, shape),
            hints + topic * HINTS + rng.integers(HINTS, size=shape),
            hints + (TOPICS + form) * HINTS + rng.integers(HINTS, size=shape),
            common + rng.choice(COMMON, size=shape, p=zipf / zipf.sum()),
        ]
        which = rng.choice(4, size=shape, p=[0.2, 0.25, 0.25, 0.3])
        np.save(folder / f"shard-{shard:02}.npy", np.choose(which, choices))


def questions():
    """Return the analogies "a is to b as c is to d", a tensor (n, 4) of words."""
    rng = np.random.default_rng(SEED + 1)
    rows = []
    for _ in range(301):
        t, u = rng.choice(TOPICS, 2, replace=False)
        f, g = rng.choice(FORMS, 2, replace=False)
        rows.append([t * FORMS + f, t * FORMS + g, u * FORMS + f, u * FORMS + g])
    return torch.tensor(np.array(rows))


class Pairs(IterableDataset):
    """The pairs of this rank, a sentence at a time: (centres, contexts, words read)."""

    def __init__(self, shards, keep, rank, world):
        self.shards, self.keep = shards, keep
        self.rank, self.world = rank, world
        self.epoch = 0

    def __iter__(self):
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        deal = np.random.default_rng((SEED, self.epoch)).permutation(len(self.shards))
        first = self.rank * workers + worker
        for shard in deal[first :: self.world * workers]:
            # A shard's own generator: its pairs do not depend on who reads it.
            rng = np.random.default_rng((SEED, self.epoch, int(shard)))
            sentences = np.load(self.shards[shard], mmap_mode="r")
            for row in rng.permutation(len(sentences)):
                yield *self.pairs(sentences[row], rng), LENGTH

    def pairs(self, sentence, rng):
        kept = sentence[rng.random(len(sentence)) < self.keep[sentence]]
        reach = rng.integers(1, WINDOW + 1, size=len(kept))
        gap = np.abs(np.arange(len(kept))[:, None] - np.arange(len(kept)))
        centre, context = np.nonzero((gap > 0) & (gap <= reach[:, None]))
        return kept[centre], kept[context]


def collate(items):
    centres, contexts, words = zip(*items)
    centres, contexts = np.concatenate(centres), np.concatenate(contexts)
    return torch.from_numpy(centres), torch.from_numpy(contexts), sum(words)


class SkipGram(nn.Module):
    def __init__(self, counts):
        super().__init__()
        self.centre = nn.Embedding(VOCAB, DIM, sparse=True)
        self.context = nn.Embedding(VOCAB, DIM, sparse=True)
        nn.init.uniform_(self.centre.weight, -0.5 / DIM, 0.5 / DIM)
        nn.init.zeros_(self.context.weight)
        self.register_buffer("noise", counts.float() ** 0.75)

    def negatives(self, n, generator):
        drawn = self.noise.multinomial(
            max(n, 1) * NEGATIVES, replacement=True, generator=generator
        )
        return drawn.view(-1, NEGATIVES)[:n]

    def forward(self, centres, contexts, negatives):
        """Return the loss, summed over the pairs."""
        v = self.centre(centres)
        hit = (v * self.context(contexts)).sum(1)
        miss = (self.context(negatives) @ v.unsqueeze(2)).squeeze(2)
        return -F.logsigmoid(hit).sum() - F.logsigmoid(-miss).sum()


def sum_sparse(grad, world):
    """Return the sum over the ranks of a sparse gradient, whose rows differ by rank."""
    grad = grad.coalesce()
    if world == 1:
        return grad
    rows = torch.tensor([grad._nnz()], device=grad.device)
    sizes = [torch.empty_like(rows) for _ in range(world)]
    dist.all_gather(sizes, rows)
    most = max(int(size) for size in sizes)
    index = F.pad(grad.indices()[0], (0, most - len(grad.values())))
    value = F.pad(grad.values(), (0, 0, 0, most - len(grad.values())))
    indices = [torch.empty_like(index) for _ in range(world)]
    values = [torch.empty_like(value) for _ in range(world)]
    dist.all_gather(indices, index)
    dist.all_gather(values, value)
    index = torch.cat([i[:size] for i, size in zip(indices, sizes)])
    value = torch.cat([v[:size] for v, size in zip(values, sizes)])
    total = torch.sparse_coo_tensor(index[None], value, grad.shape, check_invariants=False)
    return total.coalesce()


def reduce(tensor):
    if dist.is_initialized():
        dist.all_reduce(tensor)
    return tensor


@torch.no_grad()
def analogies(model, asked, rank, world):
    """Return the share of analogies that are answered rightly, of all ranks."""
    vectors = F.normalize(model.centre.weight, dim=1)
    a, b, c, d = asked[rank::world].to(vectors.device).unbind(1)
    near = (vectors[b] - vectors[a] + vectors[c]) @ vectors.T
    for given in (a, b, c):
        near.scatter_(1, given[:, None], -torch.inf)
    hits = (near.argmax(1) == d).sum()
    return reduce(hits).item() / len(asked)


def main():
    rank = int(os.environ.get("RANK", 0))
    world = int(os.environ.get("WORLD_SIZE", 1))
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if cuda else "cpu"
    if cuda:
        torch.cuda.set_device(device)
    if "RANK" in os.environ:
        dist.init_process_group("nccl" if cuda else "gloo")

    if rank == 0:
        HERE.mkdir(exist_ok=True)
        LOG.write_text("epoch,loss,accuracy\n")
        write_corpus(HERE)
    if world > 1:
        dist.barrier()
    shards = sorted(HERE.glob("shard-*.npy"))

    # Everybody counts some of the shards.
    counts = torch.zeros(VOCAB, dtype=torch.long)
    for shard in shards[rank::world]:
        counts += torch.from_numpy(np.bincount(np.load(shard).ravel(), minlength=VOCAB))
    counts = reduce(counts.to(device))
    frequency = (counts / counts.sum()).cpu().numpy()
    keep = np.sqrt(SUBSAMPLE / np.maximum(frequency, 1e-12)).clip(max=1)
    total = EPOCHS * counts.sum().item()

    torch.manual_seed(SEED)
    model = SkipGram(counts).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    generator = torch.Generator(device).manual_seed(1000 * SEED + rank)

    data = Pairs(shards, keep, rank, world)
    loader = DataLoader(
        data, batch_size=SENTENCES // world, num_workers=WORKERS, collate_fn=collate
    )
    nothing, asked = torch.empty(0, dtype=torch.long), questions()
    seen, best, bad = 0, -1.0, 0

    for epoch in range(EPOCHS):
        data.epoch = epoch
        batches = iter(loader)
        running = torch.zeros(2, dtype=torch.float64, device=device)  # loss, pairs
        while True:
            batch = next(batches, None)
            centres, contexts, words = batch or (nothing, nothing, 0)
            # How many words the ranks have read, and how many have a batch.
            step = reduce(torch.tensor([words, batch is not None], device=device))
            if step[1] == 0:
                break
            for group in optimizer.param_groups:
                group["lr"] = LR * max(1 - seen / total, MIN_LR)

            negatives = model.negatives(len(centres), generator)
            loss = model(centres.to(device), contexts.to(device), negatives)
            optimizer.zero_grad()
            loss.backward()
            for weight in model.parameters():
                weight.grad = sum_sparse(weight.grad, world)
            optimizer.step()

            seen += step[0].item()
            running += torch.stack([loss.detach(), loss.new_tensor(len(centres))])

        mean = (reduce(running)[0] / running[1]).item()
        accuracy = analogies(model, asked, rank, world)
        if rank == 0:
            lr = optimizer.param_groups[0]["lr"]
            print(f"epoch {epoch}: loss {mean:.4f}, {accuracy:.1%} right, lr {lr:.5f}")
            with LOG.open("a") as log:
                log.write(f"{epoch},{mean:.5f},{accuracy:.5f}\n")
        if accuracy > best:
            best, bad = accuracy, 0
            if rank == 0:
                torch.save(model.state_dict(), BEST)
        else:
            bad += 1
        if bad > PATIENCE:
            break

    if world > 1:
        dist.barrier()  # the file is there
    model.load_state_dict(torch.load(BEST, map_location=device))
    accuracy = analogies(model, asked, rank, world)
    if rank == 0:
        print(f"best: {accuracy:.1%} of {len(asked)} analogies right")
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
