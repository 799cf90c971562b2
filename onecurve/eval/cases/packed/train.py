"""Pretraining of a small decoder on packed documents, sharded by FSDP2.

    torchrun --nproc-per-node 2 train.py

A document's tokens see those of their own document only, and its last token has no
target. --batch is the blocks of a step over all processes; each takes its part of them
--micro at a time. The job ends after --stop-at steps, as when its time in a queue is
over, and a new trainer goes on from the checkpoint.
"""

import argparse
import math

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F
from torch import nn
from torch.distributed.checkpoint import state_dict as states
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

VOCAB, CONTEXT, END, SKIP = 40, 48, 0, -100


def write_documents(n, seed):
    """Documents of 3 to 47 tokens and an end, by a Markov chain."""
    g = torch.Generator().manual_seed(99)
    chain = torch.rand(VOCAB, VOCAB, generator=g).pow(20)
    g.manual_seed(seed)
    for _ in range(n):
        tokens = [int(torch.randint(1, VOCAB, (), generator=g))]
        for _ in range(int(torch.randint(2, 47, (), generator=g))):
            tokens.append(int(torch.multinomial(chain[tokens[-1]], 1, generator=g)))
        yield torch.tensor([*tokens, END])


def pack(documents):
    """A block has four rows: tokens, targets, number of the document, place in it."""
    blocks, used = [], CONTEXT
    for number, document in enumerate(documents, 1):
        if used + len(document) > CONTEXT:
            blocks.append(torch.zeros(4, CONTEXT, dtype=torch.long))
            blocks[-1][1] = SKIP
            used = 0
        here = blocks[-1][:, used : used + len(document)]
        here[0], here[1, :-1], here[2] = document, document[1:], number
        here[3] = torch.arange(len(document))
        used += len(document)
    return torch.stack(blocks)


class Decoder(nn.Module):
    def __init__(self, dim=32, heads=4, layers=2):
        super().__init__()
        self.heads = heads
        self.embed = nn.Embedding(VOCAB, dim)
        self.place = nn.Embedding(CONTEXT, dim)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(dim, heads, 4 * dim, 0.0, batch_first=True)
            for _ in range(layers)
        )
        self.head = nn.Linear(dim, VOCAB)

    def forward(self, blocks):
        """Return the sum of the losses."""
        tokens, targets, document, place = blocks.unbind(1)
        same = document[:, :, None] == document[:, None, :]
        hidden = ~same.tril().repeat_interleave(self.heads, 0)
        x = self.embed(tokens) + self.place(place)
        for layer in self.layers:
            x = layer(x, src_mask=hidden)
        logits = self.head(x).flatten(0, 1)
        return F.cross_entropy(logits, targets.flatten(), reduction="sum")


class Stream:
    """This rank's part of each step's blocks, in a new order in each epoch."""

    def __init__(self, blocks, batch, seed):
        self.blocks, self.batch, self.seed = blocks, batch, seed
        self.epoch = self.taken = 0

    def __len__(self):
        return len(self.blocks) // self.batch

    def take(self):
        self.epoch += self.taken == len(self)
        self.taken %= len(self)
        g = torch.Generator().manual_seed(self.seed + self.epoch)
        order = torch.randperm(len(self.blocks), generator=g)
        step = order.split(self.batch)[self.taken]
        self.taken += 1
        return self.blocks[step[dist.get_rank() :: dist.get_world_size()]]


class Trainer:
    def __init__(self, args, train, valid):
        self.args, self.valid = args, valid
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.stream = Stream(train, args.batch, args.seed)
        self.accumulate = args.batch // (args.micro * self.world)
        per_step = args.micro * self.accumulate * self.world
        self.horizon = args.epochs * (len(train) // per_step)
        torch.manual_seed(args.seed)
        self.model = Decoder()
        for module in (*self.model.layers, self.model):
            fully_shard(module, mesh=init_device_mesh("cpu", (self.world,)))
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), args.lr, betas=(0.9, 0.95), weight_decay=0.1
        )
        self.step = self.tokens = 0

    def state_dict(self):
        model, optim = states.get_state_dict(self.model, self.optimizer)
        counts = [self.step, self.tokens, self.stream.epoch, self.stream.taken]
        return {"model_state_dict": model, "optim_state_dict": optim, "counts": counts}

    def load_state_dict(self, state):
        parts = {k: state[k] for k in ("model_state_dict", "optim_state_dict")}
        states.set_state_dict(self.model, self.optimizer, **parts)
        self.step, self.tokens = state["counts"][:2]
        self.stream.epoch, self.stream.taken = state["counts"][2:]

    def rate(self):
        """Warm up, then half a cosine down to a tenth."""
        if self.step < self.args.warmup:
            return self.args.lr * (self.step + 1) / self.args.warmup
        done = (self.step - self.args.warmup) / (self.horizon - self.args.warmup)
        return self.args.lr * (0.55 + 0.45 * math.cos(math.pi * done))

    def train_step(self):
        """Return the loss of the step, per token."""
        mine = self.stream.take()
        count = (mine[:, 1] != SKIP).sum()
        dist.all_reduce(count)
        total = torch.zeros(())
        for i, piece in enumerate(mine.chunk(self.accumulate), 1):
            self.model.set_requires_gradient_sync(i == self.accumulate)
            loss = self.model(piece)
            (loss * self.world / count).backward()  # FSDP takes the mean
            total += loss.detach()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.param_groups[0]["lr"] = self.rate()
        self.optimizer.step()
        self.optimizer.zero_grad()
        dist.all_reduce(total)
        self.step += 1
        self.tokens += count.item()
        return (total / count).item()

    @torch.no_grad()
    def evaluate(self):
        """Perplexity. All ranks have to call the model as often."""
        missing = -len(self.valid) % self.world
        blank = torch.zeros_like(self.valid[:missing])
        blank[:, 1] = SKIP
        blocks = torch.cat([self.valid, blank])[self.rank :: self.world]
        sums = torch.zeros(2, dtype=torch.float64)
        for piece in blocks.split(self.args.micro):
            sums[0] += self.model(piece)
            sums[1] += (piece[:, 1] != SKIP).sum()
        dist.all_reduce(sums)
        return (sums[0] / sums[1]).exp().item()

    def run(self, until):
        while self.step < until:
            rate, loss = self.rate(), self.train_step()
            if self.step % self.args.every == 0:
                perplexity = self.evaluate()
                if self.rank == 0:
                    print(f"step {self.step} tokens {self.tokens} lr {rate:.5f}")
                    print(f"  loss {loss:.4f} valid ppl {perplexity:.3f}")


def main():
    parser = argparse.ArgumentParser()
    whole = {"epochs": 2, "batch": 16, "micro": 2, "warmup": 5, "every": 4, "seed": 0}
    for name, default in whole.items():
        parser.add_argument("--" + name, type=int, default=default)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--stop-at", type=int, default=18)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    train, valid = pack(write_documents(460, 1)), pack(write_documents(36, 2))
    trainer = Trainer(args, train, valid)
    trainer.run(args.stop_at)
    dcp.save({"trainer": trainer}, checkpoint_id="packed")
    trainer = Trainer(args, train, valid)
    dcp.load({"trainer": trainer}, checkpoint_id="packed")
    trainer.run(args.epochs * len(trainer.stream))
    dcp.save({"trainer": trainer}, checkpoint_id="packed")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
