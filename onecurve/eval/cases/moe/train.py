"""A small language model with switch layers (top-1 experts), sharded by FSDP2.

    torchrun --nproc-per-node 2 train.py

Every rank has all experts; their balance and capacity are those of the whole batch.
"""

import argparse
import math
from functools import partial

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.checkpoint import state_dict as dcp
from torch.distributed.fsdp import fully_shard
from torch.optim.lr_scheduler import LambdaLR

VOCAB, LENGTH, LAYERS, DIM, HIDDEN, EXPERTS = 24, 20, 2, 32, 48, 4


def make_text(n, seed):
    """Sequences of three languages, one after the other, each with its own bigrams."""
    tables = torch.Generator().manual_seed(99)
    rng = torch.Generator().manual_seed(seed)
    bigrams = torch.randn(3, VOCAB, VOCAB, generator=tables)
    bigrams = (bigrams * torch.tensor([1.0, 2.0, 4.0])[:, None, None]).softmax(-1)
    language = torch.arange(n) * 3 // n
    text = torch.randint(VOCAB, (n, LENGTH + 1), generator=rng)
    for t in range(LENGTH):
        row = bigrams[language, text[:, t]]
        text[:, t + 1] = torch.multinomial(row, 1, generator=rng)[:, 0]
    return text


def count_choices(choice):
    """How often each expert was chosen: on the ranks before this one, and on all."""
    counts = torch.bincount(choice, minlength=EXPERTS)
    every = [torch.empty_like(counts) for _ in range(dist.get_world_size())]
    dist.all_gather(every, counts)
    every = torch.stack(every)
    return every[: dist.get_rank()].sum(0), every.sum(0)


class Switch(nn.Module):
    def __init__(self, capacity_factor, jitter):
        super().__init__()
        self.capacity_factor, self.jitter = capacity_factor, jitter
        self.router = nn.Linear(DIM, EXPERTS, bias=False)
        self.up = nn.Parameter(torch.randn(EXPERTS, DIM, HIDDEN) / DIM**0.5)
        self.down = nn.Parameter(torch.randn(EXPERTS, HIDDEN, DIM) / HIDDEN**0.5)

    def forward(self, x):
        tokens = x.flatten(0, 1)
        noise = 2 * torch.rand_like(tokens) - 1 if self.training else 0
        probs = self.router(tokens * (1 + self.jitter * noise)).softmax(-1)
        gate, choice = probs.max(-1)
        before, total = count_choices(choice)
        balance = EXPERTS * (total / total.sum() * probs.mean(0)).sum()
        kept = torch.ones_like(choice, dtype=torch.bool)
        if self.training:
            queue = F.one_hot(choice, EXPERTS).cumsum(0) + before
            place = queue.gather(1, choice[:, None])[:, 0]
            capacity = math.ceil(self.capacity_factor * total.sum().item() / EXPERTS)
            kept = place <= capacity
        out = torch.zeros_like(tokens)
        for e in range(EXPERTS):
            at = ((choice == e) & kept).nonzero()[:, 0]
            y = F.gelu(tokens[at] @ self.up[e]) @ self.down[e]
            out = out.index_add(0, at, y * gate[at, None])
        return out.view_as(x), balance, (~kept).sum()


class Block(nn.Module):
    def __init__(self, *switch_args):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.qkv, self.proj = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.switch = Switch(*switch_args)

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, 2, -1)).unbind(2)
        q, k, v = (part.transpose(1, 2) for part in (q, k, v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(mixed.transpose(1, 2).flatten(2))
        y, *extra = self.switch(self.norm2(x))
        return x + y, *extra


class Model(nn.Module):
    def __init__(self, *switch_args):
        super().__init__()
        self.token = nn.Embedding(VOCAB, DIM)
        self.place = nn.Embedding(LENGTH, DIM)
        self.blocks = nn.ModuleList(Block(*switch_args) for _ in range(LAYERS))
        self.head = nn.Sequential(nn.LayerNorm(DIM), nn.Linear(DIM, VOCAB))

    def forward(self, ids):
        x = self.token(ids) + self.place(torch.arange(ids.shape[1]))
        balance, dropped = 0, 0
        for block in self.blocks:
            x, b, d = block(x)
            balance, dropped = balance + b / LAYERS, dropped + d
        return self.head(x), balance, dropped


def next_token_loss(logits, text, how="mean"):
    return F.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten(), reduction=how)


def learning_rate(step, steps, warmup=6):
    done = max(0, step - warmup) / (steps - warmup)
    return min((step + 1) / warmup, 0.5 + 0.5 * math.cos(math.pi * done))


def train(model, optimizer, scheduler, text, epoch, args):
    rank, world = dist.get_rank(), dist.get_world_size()
    model.train()
    rng = torch.Generator().manual_seed(args.seed + epoch)
    order = torch.randperm(len(text), generator=rng)
    sums = torch.zeros(4)
    for batch in order.split(args.batch):
        mine = text[batch.tensor_split(world)[rank]]
        logits, balance, dropped = model(mine[:, :-1])
        loss = next_token_loss(logits, mine)
        (loss + args.balance * balance).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        share = dropped / (len(mine) * LENGTH * LAYERS)
        sums += torch.stack([loss, balance, share, torch.ones(())]).detach()
    dist.all_reduce(sums)
    return (sums[:3] / sums[3]).tolist()


@torch.no_grad()
def perplexity(model, text):
    model.eval()
    mine = text.tensor_split(dist.get_world_size())[dist.get_rank()]
    logits, _, _ = model(mine[:, :-1])
    nats = next_token_loss(logits, mine, "sum").double()
    both = torch.stack([nats, torch.tensor(mine[:, 1:].numel())])
    dist.all_reduce(both)
    return (both[0] / both[1]).exp().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch", type=int, default=32, help="sequences, on all ranks")
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--balance", type=float, default=0.05)
    parser.add_argument("--capacity", type=float, default=1.1)
    parser.add_argument("--jitter", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if args.batch % dist.get_world_size():
        parser.error("the ranks need equal parts of a batch")
    text, valid = make_text(256, 1), make_text(45, 2)
    torch.manual_seed(args.seed)
    model = Model(args.capacity, args.jitter)
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    steps = args.epochs * len(text.split(args.batch))
    scheduler = LambdaLR(optimizer, partial(learning_rate, steps=steps))

    torch.manual_seed(args.seed + 1 + rank)
    for epoch in range(args.epochs):
        loss, balance, share = train(model, optimizer, scheduler, text, epoch, args)
        ppl = perplexity(model, valid)
        if rank == 0:
            print(f"epoch {epoch}  loss {loss:.4f}  balance {balance:.4f}", end="  ")
            print(f"dropped {share:.2%}  valid perplexity {ppl:.4f}")

    options = dcp.StateDictOptions(full_state_dict=True, cpu_offload=True)
    weights = dcp.get_model_state_dict(model, options=options)
    moments = dcp.get_optimizer_state_dict(model, optimizer, options=options)
    if rank == 0:
        torch.save({"model": weights, "optimizer": moments}, "moe.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
