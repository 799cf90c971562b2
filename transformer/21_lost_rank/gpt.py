"""Train a small transformer to copy. The README.md in this folder explains it."""

import argparse
import json
import os
import time
import traceback
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

STAGE = Path(__file__).resolve().parent.name
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
VOCABULARY, LENGTH = 16, 32  # different tokens, and tokens in a sequence
WIDTH, HEADS = 32, 4
TIMEOUT = timedelta(minutes=1)  # a rank that hangs for so long is lost
PATIENCE = 3  # seconds that survivors wait for each other


def draw_batch(size, seed):
    """Return sequences whose second half repeats the first, and each next token.

    Both are size x LENGTH, int64. A target is -100 where there is nothing to copy yet.
    """
    generator = torch.Generator().manual_seed(seed)
    half = torch.randint(VOCABULARY, (size, LENGTH // 2), generator=generator)
    tokens = half.repeat(1, 3)[:, : LENGTH + 1]
    inputs, targets = tokens[:, :-1], tokens[:, 1:].clone()
    targets[:, : LENGTH // 2 - 1] = -100  # which cross_entropy leaves out
    return inputs, targets


def split_heads(x):
    """Return sequences x tokens x width as sequences x heads x tokens x head width."""
    return x.unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.Linear(WIDTH, WIDTH, bias=False)
        self.k = nn.Linear(WIDTH, WIDTH, bias=False)
        self.v = nn.Linear(WIDTH, WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x):  # sequences x tokens x width
        q, k, v = split_heads(self.q(x)), split_heads(self.k(x)), split_heads(self.v(x))
        x = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(x.transpose(1, 2).flatten(2))


class MLP(nn.Sequential):
    def __init__(self):
        hidden = 4 * WIDTH
        super().__init__(nn.Linear(WIDTH, hidden), nn.GELU(), nn.Linear(hidden, WIDTH))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(WIDTH), Attention()
        self.norm2, self.mlp = nn.LayerNorm(WIDTH), MLP()

    def forward(self, x):  # sequences x tokens x width
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Embedding(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(LENGTH, WIDTH)

    def forward(self, inputs):  # sequences x tokens, int64
        positions = torch.arange(inputs.shape[1], device=DEVICE)[None]  # 1 x tokens
        return self.tokens(inputs) + self.positions(positions)


class GPT(nn.Module):
    def __init__(self, blocks):
        super().__init__()
        self.embedding = Embedding()
        self.blocks = nn.Sequential(*[Block() for _ in range(blocks)])
        self.head = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY))

    def forward(self, inputs):  # sequences x tokens, int64
        return self.head(self.blocks(self.embedding(inputs)))


def share_of_loss(output, targets, count):
    """Return the sum of these tokens' losses, divided by the whole batch's `count`."""
    output, targets = output.flatten(0, 1), targets.flatten()
    return nn.functional.cross_entropy(output, targets, reduction="sum") / count


def find_survivors(store, members, rank):
    """Return the members that still answer, from the list of whoever is first."""
    question = f"who is left of {len(members)}"
    store.set(f"{question}: {rank}", "me")
    time.sleep(PATIENCE)
    left = [member for member in members if store.check([f"{question}: {member}"])]
    return json.loads(store.compare_set(question, "", json.dumps(left)))


def train(model, optimizer, args, steps, history):
    """Take these steps; return the mean loss, and how many tokens are right."""
    for step in range(len(history) + 1, steps[-1] + 1):
        inputs, targets = draw_batch(args.batch_size, args.seed + step)
        count = (targets >= 0).sum().item()  # of the whole batch
        part = slice(dist.get_rank(), None, dist.get_world_size())
        inputs, targets = inputs[part], targets[part]
        inputs, targets = inputs.to(DEVICE), targets.to(DEVICE)
        output = model(inputs)
        loss = share_of_loss(output, targets, count)
        optimizer.zero_grad()
        loss.backward()
        for weight in model.parameters():
            dist.all_reduce(weight.grad)  # adds up over all ranks
            if [int(os.environ["RANK"]), step] in args.kill:
                os._exit(0)  # like kill -9, but torchrun lets the others live
        right = (output.argmax(dim=-1) == targets).sum()
        sums = torch.stack([loss.detach().double(), right])
        dist.all_reduce(sums)  # comes last: with it, all ranks have all gradients
        optimizer.step()
        history.append([*sums.tolist(), count])
    found = history[steps[0] - 1 : steps[-1]]
    loss_sum, correct, total = (sum(column) for column in zip(*found, strict=True))
    return loss_sum / len(steps), int(correct), total


def report(args, step, loss, correct, total, start):
    """Print the results up to a step, append them to metrics.csv; began at `start`."""
    seconds = time.perf_counter() - start
    result = f"loss {loss:.6f}  copied {correct}/{total}  {seconds:.2f} s"
    print(f"step {step}/{args.steps}  {result}")
    with open(args.out / "metrics.csv", "w" if step <= args.every else "a") as file:
        if step <= args.every:
            print("step,loss,correct,total,seconds", file=file)
        print(step, loss, correct, total, seconds, sep=",", file=file)


def main(args):
    if "RANK" not in os.environ:
        raise SystemExit(f"start it with torchrun --nproc-per-node=3 {__file__}")
    rank = int(os.environ["RANK"])
    world_size = int(os.environ["WORLD_SIZE"])
    args.out.mkdir(parents=True, exist_ok=True)

    # The processes: each one takes its own GPU and joins the process group.
    if DEVICE == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    store, _, _ = next(dist.rendezvous("env://"))  # torchrun's; go_on joins a group

    # The model: drawn in float32, so that the weights begin alike in every dtype.
    torch.manual_seed(args.seed)
    model = GPT(args.blocks).to(DEVICE, getattr(torch, args.dtype))
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    sizes = f"{args.batch_size} sequences a step, {args.blocks} blocks, {args.dtype}"
    if rank == 0:
        print(f"{STAGE}: {world_size} processes on {DEVICE} ({args.backend}), {sizes}")

    # The groups: as long as ranks are lost, the others form the next group.
    members = list(range(world_size))
    history = []  # of each step: loss, right tokens, tokens
    while True:
        try:
            go_on(store, members, model, optimizer, args, history)
            return
        except RuntimeError:
            reason = traceback.format_exc()
        if dist.is_initialized():
            dist.destroy_process_group()  # those who wait for this rank fail, too
        left = find_survivors(store, members, rank)
        if left == members or rank not in left:  # no one is lost, or this rank is
            raise SystemExit(reason)
        members = left
        if rank == members[0]:
            print(f"left: ranks {members}")


def go_on(store, members, model, optimizer, args, history):
    """Form a group of these ranks and take the steps that are not in `history`."""
    rank, size = members.index(int(os.environ["RANK"])), len(members)
    store = dist.PrefixStore(f"group of {size}", store)
    dist.init_process_group(
        args.backend, timeout=TIMEOUT, store=store, rank=rank, world_size=size
    )
    histories = [None] * size
    dist.all_gather_object(histories, history)
    if len(history) < max(map(len, histories)):  # a step whose gradients are all here
        optimizer.step()
    history[:] = max(histories, key=len)

    # The loop: a batch follows from the seed and its step, so every batch is new.
    for first in range(1, args.steps + 1, args.every):
        start = time.perf_counter()
        steps = range(first, min(first + args.every, args.steps + 1))
        loss, correct, total = train(model, optimizer, args, steps, history)
        if rank == 0:
            report(args, steps[-1], loss, correct, total, start)
    dist.barrier()  # else gloo may still hold tensors when Python ends


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=150, help="a new batch in each")
    parser.add_argument("--every", type=int, default=30, help="steps between reports")
    parser.add_argument("--batch-size", type=int, default=32, help="global batch size")
    parser.add_argument("--lr", type=float, default=3e-3, help="AdamW learning rate")
    parser.add_argument("--blocks", type=int, default=2, help="layers of transformer")
    parser.add_argument("--seed", type=int, default=0, help="of weights and batches")
    parser.add_argument("--dtype", choices=["float64", "float32"], default="float64")
    parser.add_argument("--out", type=Path, default=f"runs/{STAGE}", help="results")
    kill = {"nargs": 2, "type": int, "action": "append", "default": []}
    parser.add_argument("--kill", **kill, help="RANK STEP: end a rank, to see it lost")
    backend = "nccl" if DEVICE == "cuda" else "gloo"
    parser.add_argument("--backend", default=backend, help="nccl or gloo")
    return parser.parse_args()


if __name__ == "__main__":
    main(parse_args())
    dist.destroy_process_group()
