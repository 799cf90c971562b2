"""Sequence to sequence under FSDP2: a string of digits is sorted by a transformer.

    torchrun --nproc-per-node 2 train.py

A step takes BATCH sentences of all ranks, in ACCUMULATE pieces, and divides by the
tokens of all of them; one rank and two print the same losses.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.checkpoint import state_dict as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

PAD, BOS, EOS, DIGITS = 0, 1, 2, 8
VOCAB, DIM, MAX = 3 + DIGITS, 32, 9
BATCH, ACCUMULATE, EPOCHS, PATIENCE = 64, 2, 12, 2
LR, WARMUP = 0.01, 12


def corpus(n, seed):
    rng = torch.Generator().manual_seed(seed)
    sources = torch.full((n, MAX), PAD)
    targets = torch.full((n, MAX + 1), PAD)
    for source, target in zip(sources, targets, strict=True):
        size = int(torch.randint(2, MAX, (1,), generator=rng))
        digits = 3 + torch.randint(DIGITS, (size,), generator=rng)
        source[:size] = digits
        target[0], target[1 : size + 1] = BOS, digits.sort().values
        target[size + 1] = EOS
    return sources, targets


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM, padding_idx=PAD)
        self.place = nn.Parameter(torch.randn(MAX + 1, DIM) / 10)
        encoder = nn.TransformerEncoderLayer(DIM, 4, 64, 0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(encoder, 1, enable_nested_tensor=False)
        decoder = nn.TransformerDecoderLayer(DIM, 4, 64, 0.0, batch_first=True)
        self.decoder = nn.TransformerDecoder(decoder, 1)
        self.out = nn.Linear(DIM, VOCAB)

    def forward(self, source, target):
        blank = source == PAD
        x = self.embed(source) + self.place[: source.shape[1]]
        memory = self.encoder(x, src_key_padding_mask=blank)
        y = self.embed(target) + self.place[: target.shape[1]]
        future = torch.ones(y.shape[1], y.shape[1], dtype=torch.bool).triu(1)
        y = self.decoder(y, memory, tgt_mask=future, memory_key_padding_mask=blank)
        return self.out(y)


def shard(model):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in (*model.encoder.layers, *model.decoder.layers):
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def sum_of_losses(model, source, target):
    logits = model(source, target[:, :-1])
    return F.cross_entropy(
        logits.flatten(0, 1), target[:, 1:].flatten(), ignore_index=PAD, reduction="sum"
    )


def count_tokens(target):
    return (target[:, 1:] != PAD).sum()


def train_step(model, optimizer, source, target):
    """Return the sum of this rank's losses."""
    world = dist.get_world_size()
    tokens = count_tokens(target)
    dist.all_reduce(tokens)
    pieces = list(zip(source.chunk(ACCUMULATE), target.chunk(ACCUMULATE), strict=True))
    total = torch.zeros(())
    for i, piece in enumerate(pieces):
        model.set_requires_gradient_sync(i == len(pieces) - 1)
        loss = sum_of_losses(model, *piece)
        (loss * world / tokens).backward()  # FSDP takes the mean over the ranks
        total += loss.detach()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return total


@torch.no_grad()
def dev_loss(model, source, target):
    model.eval()
    rank, world = dist.get_rank(), dist.get_world_size()
    source, target = source[rank::world], target[rank::world]
    both = torch.stack([sum_of_losses(model, source, target), count_tokens(target)])
    dist.all_reduce(both)
    return (both[0] / both[1]).item()


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    source, target = corpus(384, seed=1)
    dev = corpus(77, seed=2)
    torch.manual_seed(0)
    model = shard(Translator())
    optimizer = torch.optim.Adam(model.parameters(), lr=LR, betas=(0.9, 0.98))
    noam = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda n: min((n + 1) / WARMUP, (WARMUP / (n + 1)) ** 0.5)
    )

    best, waited = float("inf"), 0
    for epoch in range(EPOCHS):
        model.train()
        rng = torch.Generator().manual_seed(epoch)
        total = torch.zeros(2)
        for step in torch.randperm(len(source), generator=rng).split(BATCH):
            mine = step[rank::world]
            loss = train_step(model, optimizer, source[mine], target[mine])
            noam.step()
            total += torch.stack([loss, count_tokens(target[mine])])
        dist.all_reduce(total)
        now = dev_loss(model, *dev)
        if rank == 0:
            print(f"epoch {epoch}: train {total[0] / total[1]:.5f}, dev {now:.5f}")
        waited = 0 if now < best else waited + 1
        if now < best:
            best = now
            options = dcp.StateDictOptions(full_state_dict=True, cpu_offload=True)
            state = dcp.get_model_state_dict(model, options=options)
            if rank == 0:
                torch.save(state, "translator.pt")
        if waited > PATIENCE:
            break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
