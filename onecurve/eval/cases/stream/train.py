"""A language model on a stream of documents, batched by a budget of tokens.

No wrapper: gradients are added up over the ranks by hand, once per step.
"""

import itertools
import math
import os
import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.utils import clip_grad_norm_
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, IterableDataset

VOCAB, BOS, UNK = 64, 0, 1
BUDGET = 160  # tokens of one rank in one step, at most
TOTAL_TOKENS = int(os.environ.get("TOTAL_TOKENS", "9600"))
EVAL_EVERY = 10
SEED = 5
OUT = os.environ.get("OUT", "runs/stream")


def make_documents(count, seed):
    rng = random.Random(seed)
    documents = []
    for _ in range(count):
        token = rng.randrange(2, VOCAB)
        document = [BOS]
        for _ in range(rng.randint(5, 40)):
            token = 2 + (token * 3 + rng.randrange(3)) % (VOCAB - 2)
            document.append(token)
        documents.append(document)
    return documents


class TokenBatches(IterableDataset):
    """Endless batches of at most `budget` tokens from this rank's documents."""

    def __init__(self, documents, budget, rank, world_size):
        self.documents = documents
        self.budget = budget
        self.rank, self.world_size = rank, world_size

    def stream(self):
        for epoch in itertools.count():
            order = list(self.documents)
            random.Random(SEED + epoch).shuffle(order)
            yield from order

    def __iter__(self):
        batch, tokens = [], 0
        for doc in itertools.islice(self.stream(), self.rank, None, self.world_size):
            if tokens + len(doc) > self.budget:
                yield collate(batch)
                batch, tokens = [], 0
            batch.append(torch.tensor(doc))
            tokens += len(doc)


def collate(batch):
    inputs = pad_sequence([doc[:-1] for doc in batch], batch_first=True)
    targets = [doc[1:] for doc in batch]
    return inputs, pad_sequence(targets, batch_first=True, padding_value=-100)


class GRULM(nn.Module):
    def __init__(self, dim=48):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, VOCAB)

    def forward(self, tokens):
        return self.out(self.rnn(self.emb(tokens))[0])


def summed_loss(model, inputs, targets):
    logits = model(inputs).flatten(0, 1)
    return nn.functional.cross_entropy(logits, targets.flatten(), reduction="sum")


@torch.no_grad()
def perplexity(model, documents):
    totals = torch.zeros(2)
    for document in documents:
        inputs, targets = collate([torch.tensor(document)])
        totals[0] += summed_loss(model, inputs, targets)
        totals[1] += targets.numel()
    dist.all_reduce(totals)
    return math.exp(totals[0] / totals[1])


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    held_out = make_documents(75, seed=1)[rank::world_size]
    dataset = TokenBatches(make_documents(300, seed=2), BUDGET, rank, world_size)
    batches = iter(DataLoader(dataset, batch_size=None))

    torch.manual_seed(SEED)  # one seed: nobody hands out the weights
    model = GRULM()
    torch.manual_seed(SEED + 1 + rank)  # word dropout
    steps = TOTAL_TOKENS // (BUDGET * world_size)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)

    seen = 0
    for step in range(1, steps + 1):
        inputs, targets = next(batches)
        inputs = inputs.masked_fill(torch.rand(inputs.shape) < 0.1, UNK)
        loss = summed_loss(model, inputs, targets)
        totals = torch.stack([loss.detach(), (targets >= 0).sum()])
        dist.all_reduce(totals)
        optimizer.zero_grad()
        (loss / totals[1]).backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
        clip_grad_norm_(model.parameters(), 0.2)
        optimizer.step()
        schedule.step()
        seen += int(totals[1])
        if step % EVAL_EVERY == 0 or step == steps:
            ppl = perplexity(model, held_out)
            if rank == 0:
                loss = totals[0] / totals[1]
                print(f"{step=} {seen=} loss={loss.item():.4f} {ppl=:.3f}", flush=True)
    if rank == 0:
        os.makedirs(OUT, exist_ok=True)
        torch.save({"step": step, "model": model.state_dict()}, f"{OUT}/last.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
