"""FSDP2 pre-training of a toy decoder on a mixture of two sources."""

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint.state_dict as dcp
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, Sampler, TensorDataset

VOCAB, CONTEXT = 40, 24


class Block(nn.Module):
    def __init__(self, d, heads, p):
        super().__init__()
        self.heads, self.ln1, self.ln2 = heads, nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))
        self.drop = nn.Dropout(p)

    def forward(self, x):
        parts = self.qkv(self.ln1(x)).unflatten(2, (3, self.heads, -1))
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        h = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.drop(self.proj(h.transpose(1, 2).flatten(2)))
        return x + self.drop(self.mlp(self.ln2(x)))


class Decoder(nn.Module):
    def __init__(self, d=32, heads=4, layers=2, p=0.1):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, d), nn.Embedding(CONTEXT, d)
        self.blocks = nn.ModuleList(Block(d, heads, p) for _ in range(layers))
        self.ln, self.head = nn.LayerNorm(d), nn.Linear(d, VOCAB, bias=False)

    def forward(self, idx):
        x = self.tok(idx) + self.pos(torch.arange(idx.shape[1], device=idx.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln(x))


class MixtureSampler(Sampler):
    """Draw an epoch by the windows' weights; hand this rank every W-th draw."""

    def __init__(self, weights, num_samples, seed, rank, world):
        self.weights, self.num_samples, self.seed = weights, num_samples, seed
        self.rank, self.world, self.epoch = rank, world, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):  # num_samples is a multiple of the world size
        return self.num_samples // self.world

    def __iter__(self):
        g = torch.Generator().manual_seed(self.seed + self.epoch)
        drawn = torch.multinomial(self.weights, self.num_samples, generator=g)
        return iter(drawn[self.rank :: self.world].tolist())


def windows(n, stride, seed):
    g = torch.Generator().manual_seed(seed)
    start = torch.randint(0, VOCAB, (n, 1), generator=g)
    noise = torch.randint(0, 2, (n, CONTEXT + 1), generator=g)
    return (start + stride * torch.arange(CONTEXT + 1) + noise) % VOCAB


def lm_loss(model, w):
    logits = model(w[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), w[:, 1:].flatten())


@torch.no_grad()
def validation_loss(model, data, rank, world, batch=16):
    """FSDP needs equal numbers of batches: what fills the last one is not counted."""
    model.eval()
    per_rank = -(-len(data) // world)
    index = torch.arange(rank, per_rank * world, world)
    total = torch.zeros(2)
    for part in index.split(batch):
        w = data[part % len(data)]
        targets = w[:, 1:].masked_fill((part >= len(data))[:, None], -100)
        logits = model(w[:, :-1]).flatten(0, 1)
        total[0] += F.cross_entropy(logits, targets.flatten(), reduction="sum")
        total[1] += (targets != -100).sum()
    dist.all_reduce(total)
    model.train()
    return (total[0] / total[1]).item()


def main(a):
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    train = torch.cat([windows(220, 1, 1), windows(80, 3, 2)])
    val = torch.cat([windows(40, 1, 3), windows(33, 3, 4)])
    weights = torch.cat([torch.ones(220), torch.full((80,), 2.0)])
    sampler = MixtureSampler(weights, 240, a.seed, rank, world)
    micro = a.batch // (world * a.accum)
    loader = DataLoader(TensorDataset(train), micro, sampler=sampler, drop_last=True)

    torch.manual_seed(a.seed)
    model = Decoder()
    mesh = init_device_mesh("cpu", (world,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optim = torch.optim.AdamW(model.parameters(), lr=a.lr, weight_decay=0.01)
    sched = torch.optim.lr_scheduler.StepLR(optim, step_size=8, gamma=0.7)
    torch.manual_seed(a.seed + 1 + rank)  # dropout masks

    for epoch in range(a.epochs):
        sampler.set_epoch(epoch)
        logged = torch.zeros(2)
        for i, (w,) in enumerate(loader, start=1):
            last = i % a.accum == 0
            model.set_requires_gradient_sync(last)
            loss = lm_loss(model, w)
            (loss / a.accum).backward()
            logged += torch.stack([loss.detach(), torch.tensor(1)])
            if last:
                norm = nn.utils.clip_grad_norm_(model.parameters(), 0.2).full_tensor()
                optim.step()
                optim.zero_grad()
                sched.step()
        dist.all_reduce(logged)
        val_loss = validation_loss(model, val, rank, world)
        if rank == 0:
            mean = (logged[0] / logged[1]).item()
            print(f"{epoch=} loss {mean:.4f} val {val_loss:.4f} norm {norm.item():.3f}")

    full = dcp.StateDictOptions(full_state_dict=True, cpu_offload=True)
    state = dcp.get_model_state_dict(model, options=full)
    if rank == 0:
        a.out.mkdir(parents=True, exist_ok=True)
        torch.save(state, a.out / "decoder.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("--epochs", type=int, default=2)
    cli.add_argument("--batch", type=int, default=24)
    cli.add_argument("--accum", type=int, default=2)
    cli.add_argument("--lr", type=float, default=4e-3)
    cli.add_argument("--seed", type=int, default=0)
    cli.add_argument("--out", type=Path, default=Path("runs/sharded"))
    main(cli.parse_args())
