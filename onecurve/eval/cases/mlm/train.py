"""Masked language modelling with FSDP2; the masks are drawn in the collate function.

    torchrun --nproc-per-node 2 train.py

Sentences differ in length, and so do the numbers of masked tokens.
"""

import argparse
import math

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
)
from torch.distributed.fsdp import fully_shard
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, DistributedSampler, Subset

WORDS, PAD, MASK, IGNORE = 34, 0, 1, -100


def make_sentences(n, seed):
    """A word has four likely followers."""
    grammar = torch.Generator().manual_seed(0)
    follows = torch.randint(2, WORDS, (WORDS, 4), generator=grammar)
    g = torch.Generator().manual_seed(seed)
    sentences = []
    for _ in range(n):
        size = int(torch.randint(6, 25, (1,), generator=g))
        words = [int(torch.randint(2, WORDS, (1,), generator=g))]
        for choice in torch.randint(4, (size - 1,), generator=g).tolist():
            words.append(int(follows[words[-1], choice]))
        sentences.append(torch.tensor(words))
    return sentences


def hide(sentences, hidden):
    """Inputs with hidden words, and targets that have only these."""
    inputs, targets = [], []
    for words, where in zip(sentences, hidden, strict=True):
        inputs.append(words.masked_fill(where, MASK))
        targets.append(words.masked_fill(~where, IGNORE))
    return (
        pad_sequence(inputs, batch_first=True, padding_value=PAD),
        pad_sequence(targets, batch_first=True, padding_value=IGNORE),
    )


def random_masks(sentences):
    return hide(sentences, [torch.rand(len(words)) < 0.2 for words in sentences])


def fixed_masks(sentences):
    return hide(sentences, [torch.arange(len(words)) % 5 == 3 for words in sentences])


class Block(nn.Module):
    def __init__(self, dim, heads=2):
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(dim), nn.LayerNorm(dim)])
        self.attention = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.mlp = nn.Sequential(
            nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim)
        )

    def forward(self, x, padding):
        y = self.norms[0](x)
        y, _ = self.attention(y, y, y, key_padding_mask=padding, need_weights=False)
        x = x + y
        return x + self.mlp(self.norms[1](x))


class Encoder(nn.Module):
    def __init__(self, dim=32, layers=2, longest=24):
        super().__init__()
        self.words = nn.Embedding(WORDS, dim)
        self.places = nn.Embedding(longest, dim)
        self.blocks = nn.ModuleList(Block(dim) for _ in range(layers))
        self.out = nn.Linear(dim, WORDS)

    def forward(self, tokens):
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x, tokens == PAD)
        return self.out(x)


def summed_loss(model, inputs, targets):
    logits = model(inputs).flatten(0, 1)
    return F.cross_entropy(
        logits, targets.flatten(), ignore_index=IGNORE, reduction="sum"
    )


@torch.no_grad()
def perplexity(model, sentences):
    model.eval()
    rank, world = dist.get_rank(), dist.get_world_size()
    # A forward pass gathers weights, so every rank needs as many batches.
    batches = math.ceil(len(sentences) / (16 * world))
    mine = torch.arange(rank, len(sentences), world).tensor_split(batches)
    sums = torch.zeros(2, dtype=torch.float64)
    for inputs, targets in DataLoader(
        sentences,
        batch_sampler=[part.tolist() for part in mine],
        collate_fn=fixed_masks,
    ):
        sums[0] += summed_loss(model, inputs, targets)
        sums[1] += (targets != IGNORE).sum()
    dist.all_reduce(sums)
    return (sums[0] / sums[1]).exp().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch-size", type=int, default=32, help="of all ranks")
    parser.add_argument("--clip", type=float, default=0.8)
    parser.add_argument("--seed", type=int, default=2)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()

    sentences = make_sentences(861, 1)
    train, val = Subset(sentences, range(800)), sentences[800:]
    sampler = DistributedSampler(train, seed=args.seed)
    loader = DataLoader(
        train, args.batch_size // world, sampler=sampler, collate_fn=random_masks
    )
    torch.manual_seed(args.seed)  # the same weights on all ranks, before they are cut
    model = Encoder()
    mesh = dist.init_device_mesh("cpu", (world,))
    for module in (*model.blocks, model):
        fully_shard(module, mesh=mesh)
    torch.manual_seed(100 * args.seed + rank)  # for the masks
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        model.train()
        totals = torch.zeros(2)
        for inputs, targets in loader:
            masked = (targets != IGNORE).sum()
            loss = summed_loss(model, inputs, targets)
            totals += torch.stack([loss.detach(), masked])
            dist.all_reduce(masked)
            optimizer.zero_grad()
            (loss * world / masked).backward()  # FSDP divides by world
            norm = nn.utils.clip_grad_norm_(model.parameters(), args.clip)
            optimizer.step()
        dist.all_reduce(totals)
        norm = norm.full_tensor().item()
        loss, score = (totals[0] / totals[1]).item(), perplexity(model, val)
        if rank == 0:
            print(f"{epoch}: loss {loss:.4f}, val ppl {score:.3f}, norm {norm:.3f}")
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    state = get_model_state_dict(model, options=options)
    if rank == 0:
        torch.save(state, "encoder.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
