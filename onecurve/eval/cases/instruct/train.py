"""Instruction tuning of a small causal language model, sharded by FSDP2.

    torchrun --nproc-per-node=2 train.py

Only the answers are learned. As they are of unequal length, the loss of a step is
divided by the targets of all its micro-batches on all ranks. A job ends after JOB_STEPS,
and the next goes on from its checkpoint within the epoch; here one runs after another.
"""

import json
import math
import os
import random
import shutil
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F
from torch import nn
from torch.distributed.checkpoint import state_dict as sharded
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader

SEED = 5
BATCH, ACCUM = 24, 2  # examples of a micro-batch of all ranks, micro-batches of a step
TRAIN, VALID, TEST = 24 * BATCH, 193, 30
EPOCHS, JOB_STEPS, WARMUP = 5, 32, 8
LR, DECAY, CLIP = 1e-2, 0.05, 1.0
DIM, HEADS, LAYERS, DROPOUT, CONTEXT = 48, 4, 2, 0.1, 40
IGNORE = -100
OUT = Path("instruct-out")

CHARS = "\0\n:. abcdefghijklmnopqrstuvwxyz"  # \0 pads, and \n ends prompt and answer
ID = {c: i for i, c in enumerate(CHARS)}
TASKS = {"copy": str, "double": lambda w: w + w, "least": min, "spell": ".".join}


def examples(n, seed):
    rng = random.Random(seed)
    tasks = rng.choices(list(TASKS), k=n)
    words = ["".join(rng.choices("abcdef", k=rng.randint(2, 6))) for _ in range(n)]
    return [(f"{t}: {w}\n", TASKS[t](w) + "\n") for t, w in zip(tasks, words)]


def collate(pairs):
    """Return tokens and labels, padded; labels are the next tokens of the answers."""
    texts = [torch.tensor([ID[c] for c in prompt + answer]) for prompt, answer in pairs]
    tokens = nn.utils.rnn.pad_sequence(texts, batch_first=True)
    labels = torch.full_like(tokens, IGNORE)
    for row, (prompt, answer) in enumerate(pairs):
        first, last = len(prompt), len(prompt + answer)
        labels[row, first - 1 : last - 1] = tokens[row, first:last]
    return tokens, labels


class LengthGrouped:
    """Batch sampler: a rank's part of micro-batches with examples of like length."""

    def __init__(self, lengths, rank, world):
        self.lengths, self.rank, self.world = lengths, rank, world
        self.epoch = self.skip = 0

    def __iter__(self):
        rng = random.Random(SEED + self.epoch)
        order = rng.sample(range(len(self.lengths)), len(self.lengths))
        batches = []
        for i in range(0, len(order), 6 * BATCH):
            chunk = sorted(order[i : i + 6 * BATCH], key=self.lengths.__getitem__)
            batches += [chunk[j : j + BATCH] for j in range(0, len(chunk), BATCH)]
        rng.shuffle(batches)
        for batch in batches[self.skip :]:
            yield batch[self.rank :: self.world]

    def __len__(self):
        return len(self.lengths) // BATCH - self.skip


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.qkv, self.out = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.mlp = nn.Sequential(nn.Linear(DIM, 192), nn.GELU(), nn.Linear(192, DIM))
        self.drop = nn.Dropout(DROPOUT)

    def forward(self, x):
        qkv = self.qkv(self.norm1(x)).unflatten(2, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(*qkv, is_causal=True)
        x = x + self.drop(self.out(mixed.transpose(1, 2).flatten(2)))
        return x + self.drop(self.mlp(self.norm2(x)))


class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(len(CHARS), DIM)
        self.place = nn.Embedding(CONTEXT, DIM)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(DIM), nn.Linear(DIM, len(CHARS), bias=False)

    def forward(self, tokens):
        x = self.embed(tokens) + self.place.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Job(Stateful):
    """What a checkpoint has."""

    def __init__(self, *parts):
        self.model, self.optimizer, self.scheduler = parts
        self.step, self.best = 0, math.inf

    def state_dict(self):
        weights, moments = sharded.get_state_dict(self.model, self.optimizer)
        progress = {"step": self.step, "best": self.best, "lr": self.scheduler.state_dict()}
        return {"model": weights, "optim": moments, **progress}

    def load_state_dict(self, state):
        parts = {"model_state_dict": state["model"], "optim_state_dict": state["optim"]}
        sharded.set_state_dict(self.model, self.optimizer, **parts)
        self.scheduler.load_state_dict(state["lr"])
        self.step, self.best = state["step"], state["best"]


def total_loss(model, tokens, labels):
    logits = model(tokens).flatten(0, 1)
    return F.cross_entropy(logits, labels.flatten(), reduction="sum", ignore_index=IGNORE)


@torch.no_grad()
def perplexity(model, pairs, rank, world, device):
    """Return the perplexity of all the answers' tokens. All ranks call it together."""
    model.eval()
    share = pairs[rank::world]
    sums = torch.zeros(2, device=device)
    for i in range(0, math.ceil(len(pairs) / world), 32):  # as often on each rank
        tokens, labels = collate(share[i : i + 32] or pairs[:1])
        if i >= len(share):
            labels.fill_(IGNORE)
        loss = total_loss(model, tokens.to(device), labels.to(device))
        sums += torch.stack([loss, loss.new_tensor((labels != IGNORE).sum().item())])
    model.train()
    dist.all_reduce(sums)
    return (sums[0] / sums[1]).exp().item()


def warmup_cosine(step, total):
    done = min(max(step - WARMUP, 0) / (total - WARMUP), 1)
    return min((step + 1) / WARMUP, 1) * (0.5 + 0.5 * math.cos(math.pi * done))


def run_job(rank, world, mesh, device):
    """Train for JOB_STEPS from the last checkpoint on. Return whether all is done."""
    train, valid = examples(TRAIN, SEED), examples(VALID, SEED + 1)
    batches = LengthGrouped([len(p + a) for p, a in train], rank, world)
    epoch_steps = len(batches) // ACCUM
    total = EPOCHS * epoch_steps
    loader = DataLoader(train, batch_sampler=batches, collate_fn=collate)
    torch.manual_seed(SEED)
    model = LM().to(device)
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=DECAY)
    scheduler = LambdaLR(optimizer, lambda step: warmup_cosine(step, total))
    job = Job(model, optimizer, scheduler)
    if last := max(OUT.glob("step-*"), default=None):
        dcp.load({"job": job}, checkpoint_id=last)
    torch.manual_seed(SEED + 1000 * (job.step + 1) + rank)  # for dropout

    stop = min(job.step + JOB_STEPS, total)
    window = torch.zeros(2, device=device)  # loss and targets since the last print
    while job.step < stop:
        batches.epoch, done = divmod(job.step, epoch_steps)
        batches.skip = done * ACCUM
        micros = iter(loader)
        for _ in range(min(epoch_steps - done, stop - job.step)):
            group = [next(micros) for _ in range(ACCUM)]
            targets = sum((labels != IGNORE).sum() for _, labels in group).to(device)
            window[1] += targets
            dist.all_reduce(targets)
            for i, (tokens, labels) in enumerate(group):
                model.set_requires_gradient_sync(i == ACCUM - 1)
                loss = total_loss(model, tokens.to(device), labels.to(device))
                (loss * world / targets).backward()  # FSDP takes the mean of the ranks
                window[0] += loss.detach()
            nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            job.step += 1

        dist.all_reduce(window)
        score = perplexity(model, valid, rank, world, device)
        if rank == 0:
            loss = window[0] / window[1]
            print(f"step {job.step}: loss {loss:.4f}, perplexity {score:.4f}")
        window.zero_()
        if score < job.best:
            job.best = score
            full = sharded.StateDictOptions(full_state_dict=True, cpu_offload=True)
            weights = sharded.get_model_state_dict(model, options=full)
            if rank == 0:
                torch.save(weights, OUT / "best.pt")
    dcp.save({"job": job}, checkpoint_id=OUT / f"step-{job.step:06}")
    return stop == total


@torch.no_grad()
def answer(model, prompt, device):
    """Return the model's most likely answer."""
    text = prompt
    while len(text) < CONTEXT and (text == prompt or text[-1] != "\n"):
        tokens = torch.tensor([[ID[c] for c in text]], device=device)
        text += CHARS[model(tokens)[0, -1].argmax()]
    return text[len(prompt) :]


def main():
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    device = torch.device("cuda" if backend == "nccl" else "cpu")
    if backend == "nccl":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
    if "RANK" in os.environ:
        dist.init_process_group(backend)
    else:
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
    rank, world = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh(device.type, (world,))
    if rank == 0:
        shutil.rmtree(OUT, ignore_errors=True)
        OUT.mkdir()
    dist.barrier()
    while not run_job(rank, world, mesh, device):
        pass
    dist.barrier()
    # The best model, whole, answers the test prompts of this rank.
    model = LM().to(device).eval()
    model.load_state_dict(torch.load(OUT / "best.pt", map_location=device))
    test = examples(TEST, SEED + 2)
    mine = [(ask, answer(model, ask, device), right) for ask, right in test[rank::world]]
    everyone = [None] * world
    dist.all_gather_object(everyone, mine)
    if rank == 0:
        rows = sum(everyone, [])
        hits = sum(said == right for _, said, right in rows)
        print(f"best: {hits} of {len(rows)} answers right")
        (OUT / "answers.jsonl").write_text("\n".join(map(json.dumps, rows)))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
