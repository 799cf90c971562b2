"""Fine-tune a part-of-speech tagger: pretrained vectors, padded batches, DDP."""

import argparse
import os
import random

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, DistributedSampler, Subset

PAD, IGNORE = 0, -100
VOCAB, TAGS = 120, 7
LR = 3e-3


class Tagger(nn.Module):
    def __init__(self, dim=32, dropout=0.1):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, dim, padding_idx=PAD)
        self.encoder = nn.TransformerEncoderLayer(dim, 4, 64, dropout, batch_first=True)
        self.head = nn.Linear(dim, TAGS)

    def forward(self, words):
        hidden = self.encoder(self.embedding(words), src_key_padding_mask=words == PAD)
        return self.head(hidden)


def read_corpus(size, seed):
    """Stands in for a CoNLL file: [(word ids, tag ids), ...]."""
    rng = random.Random(seed)
    lexicon = [rng.randrange(TAGS) for _ in range(VOCAB)]
    sentences = []
    for _ in range(size):
        words = [rng.randrange(1, VOCAB) for _ in range(rng.randint(3, 24))]
        sentences.append((words, [lexicon[word] for word in words]))
    return sentences


def load_pretrained(model, seed=1234):
    """Stands in for a download of word vectors."""
    generator = torch.Generator().manual_seed(seed)
    vectors = torch.randn(VOCAB, model.embedding.embedding_dim, generator=generator)
    with torch.no_grad():
        model.embedding.weight[1:] = vectors[1:]


def collate_fn(batch):
    words = [torch.tensor(words) for words, _ in batch]
    tags = [torch.tensor(tags) for _, tags in batch]
    return pad_sequence(words, True, PAD), pad_sequence(tags, True, IGNORE)


def train_epoch(model, loader, optimizer, world_size):
    model.train()
    stats = torch.zeros(2)  # summed loss, tokens
    for words, tags in loader:
        logits = model(words).flatten(0, 1)
        labels = tags.flatten()
        loss = F.cross_entropy(logits, labels, ignore_index=IGNORE, reduction="sum")
        tokens = (labels != IGNORE).sum()
        stats += torch.stack([loss.detach(), tokens])
        dist.all_reduce(tokens)  # sentences differ in length, so ranks do, too
        optimizer.zero_grad()
        (loss * world_size / tokens).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
    dist.all_reduce(stats)
    return (stats[0] / stats[1]).item()


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    counts = torch.zeros(2, dtype=torch.long)  # right, all
    for words, tags in loader:
        guesses = model(words).argmax(dim=-1)
        known = tags != IGNORE
        counts[0] += (guesses[known] == tags[known]).sum()
        counts[1] += known.sum()
    dist.all_reduce(counts)
    return counts.tolist()


def main(args):
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    os.makedirs(args.out, exist_ok=True)

    sentences = read_corpus(603, seed=11)
    random.Random(args.seed).shuffle(sentences)
    train, test = sentences[:400], sentences[400:]
    sampler = DistributedSampler(train, seed=args.seed, drop_last=True)
    batch = args.batch_size // world_size
    loader = DataLoader(train, batch, sampler=sampler, collate_fn=collate_fn)
    shard = Subset(test, range(rank, len(test), world_size))
    test_loader = DataLoader(shard, 64, collate_fn=collate_fn)

    torch.manual_seed(args.seed)
    model = Tagger()
    load_pretrained(model)
    ddp_model = DDP(model)
    torch.manual_seed(args.seed + 1 + rank)  # dropout
    rest = [*model.encoder.parameters(), *model.head.parameters()]
    groups = [{"params": model.embedding.parameters()}, {"params": rest}]
    optimizer = torch.optim.AdamW(groups, lr=LR)

    best = 0
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        # the vectors stay as they are until the head is no longer random
        optimizer.param_groups[0]["lr"] = 0.0 if epoch == 0 else LR / 3
        loss = train_epoch(ddp_model, loader, optimizer, world_size)
        right, total = evaluate(model, test_loader)
        if rank == 0:
            print(f"epoch {epoch} | loss {loss:.4f} | accuracy {right}/{total}")
        if right > best:
            best = right
            if rank == 0:
                torch.save(model.state_dict(), f"{args.out}/best.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=48, help="of all ranks")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--out", default="runs/tagger")
    main(parser.parse_args())
