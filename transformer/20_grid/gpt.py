"""Train a small transformer to copy. The README.md in this folder explains it."""

import argparse
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

STAGE = Path(__file__).resolve().parent.name
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
VOCABULARY, LENGTH = 16, 32  # different tokens, and tokens in a sequence
WIDTH, HEADS = 32, 4
RING = 2  # neighboring ranks that share their sequences, in a row of the grid


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


def ring():
    """Return this rank's position in its ring, and how many ranks the ring has."""
    return dist.get_rank() % RING, RING


def pass_on(tensor, by):
    """Send a tensor `by` positions on in the ring, and return the one that arrives."""
    position, size = ring()
    arriving = torch.empty_like(tensor)
    first = dist.get_rank() - position  # in this row
    send = dist.P2POp(dist.isend, tensor, first + (position + by) % size)
    receive = dist.P2POp(dist.irecv, arriving, first + (position - by) % size)
    for work in dist.batch_isend_irecv([send, receive]):
        work.wait()
    return arriving


class PassOn(torch.autograd.Function):
    """Sends a tensor to the next rank of its ring, and the gradient back from there."""

    @staticmethod
    def forward(context, tensor):
        return pass_on(tensor, 1)

    @staticmethod
    def backward(context, gradient):
        return pass_on(gradient.contiguous(), -1)


def ring_attention(q, k, v):
    """Return causal attention; q, k, v: sequences x heads x this rank's tokens x width.

    From turn 1 on, keys and values arrive from the previous rank. The softmax over all
    turns is kept as two sums, both scaled by exp(-highest).
    """
    position, size = ring()
    tokens = torch.arange(q.shape[2], device=DEVICE)
    mine = position * len(tokens) + tokens
    output, total = 0, 0
    highest = torch.tensor(-torch.inf, device=DEVICE)
    for turn in range(size):
        theirs = (position - turn) % size * len(tokens) + tokens
        scores = q @ k.mT / q.shape[-1] ** 0.5
        scores = scores.masked_fill(theirs > mine[:, None], -torch.inf)
        before = highest
        highest = before.maximum(scores.detach().amax(dim=-1, keepdim=True))
        rescale = (before - highest).exp()
        weights = (scores - highest).exp()
        output = output * rescale + weights @ v
        total = total * rescale + weights.sum(dim=-1, keepdim=True)
        if turn < size - 1:
            k, v = PassOn.apply(torch.stack([k, v]))
    return output / total


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.Linear(WIDTH, WIDTH, bias=False)
        self.k = nn.Linear(WIDTH, WIDTH, bias=False)
        self.v = nn.Linear(WIDTH, WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x):  # sequences x tokens x width
        q, k, v = split_heads(self.q(x)), split_heads(self.k(x)), split_heads(self.v(x))
        x = ring_attention(q, k, v)
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
        position, _ = ring()
        first = position * inputs.shape[1]  # of this rank's tokens
        positions = first + torch.arange(inputs.shape[1], device=DEVICE)[None]
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


def train(model, optimizer, args, steps):
    """Take these steps; return the mean loss, and how many tokens are right."""
    total = 0
    sums = torch.zeros(2, dtype=torch.float64, device=DEVICE)  # losses, right tokens
    for step in steps:
        inputs, targets = draw_batch(args.batch_size, args.seed + step)
        count = (targets >= 0).sum().item()  # of the whole batch
        position, size = ring()
        row = slice(dist.get_rank() // size, None, dist.get_world_size() // size)
        inputs = inputs[row].chunk(size, dim=1)[position]
        targets = targets[row].chunk(size, dim=1)[position]
        inputs, targets = inputs.to(DEVICE), targets.to(DEVICE)
        output = model(inputs)
        loss = share_of_loss(output, targets, count)
        optimizer.zero_grad()
        (loss * dist.get_world_size()).backward()  # FSDP divides by it
        optimizer.step()
        right = (output.argmax(dim=-1) == targets).sum()
        sums += torch.stack([loss.detach(), right])
        total += count
    dist.all_reduce(sums)
    loss_sum, correct = sums.tolist()
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
    if int(os.environ.get("WORLD_SIZE", "1")) % RING:
        raise SystemExit(f"start it with torchrun --nproc-per-node=4 {__file__}")
    rank = int(os.environ["RANK"])
    world_size = int(os.environ["WORLD_SIZE"])
    args.out.mkdir(parents=True, exist_ok=True)

    # The processes: each one takes its own GPU and joins the process group.
    if DEVICE == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    dist.init_process_group(args.backend)

    # The model: drawn in float32, so that the weights begin alike in every dtype.
    torch.manual_seed(args.seed)
    model = GPT(args.blocks).to(DEVICE, getattr(torch, args.dtype))
    mesh = dist.init_device_mesh(DEVICE, (world_size,))
    for module in (*model.blocks, model):
        fully_shard(module, mesh=mesh)  # each rank keeps its part
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    sizes = f"{args.batch_size} sequences a step, {args.blocks} blocks, {args.dtype}"
    if rank == 0:
        print(f"{STAGE}: {world_size} processes on {DEVICE} ({args.backend}), {sizes}")

    # The loop: a batch follows from the seed and its step, so every batch is new.
    for first in range(1, args.steps + 1, args.every):
        start = time.perf_counter()
        steps = range(first, min(first + args.every, args.steps + 1))
        loss, correct, total = train(model, optimizer, args, steps)
        if rank == 0:
            report(args, steps[-1], loss, correct, total, start)


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
    backend = "nccl" if DEVICE == "cuda" else "gloo"
    parser.add_argument("--backend", default=backend, help="nccl or gloo")
    return parser.parse_args()


if __name__ == "__main__":
    main(parse_args())
    dist.barrier()  # else gloo may still hold tensors when Python ends
    dist.destroy_process_group()
