"""MAML with learned inner rates: five-way, one-shot classification of small signs.

    torchrun --nproc-per-node 2 train.py

A task has a number, and its number alone says what is in it. The tasks of a step are
shared out over the processes, and the outer gradients are added up by hand.
"""

import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call

WAYS, SHOTS, QUERIES = 5, 1, 5
SIDE, CHANNELS = 8, 12
VAL_TASKS, TEST_TASKS = 31, 121
FIRST = {"train": 0, "val": 1_000_000, "test": 2_000_000}  # numbers of the tasks


def draw_signs(n, seed):
    """One picture for each class: some strokes from left to right or downwards."""
    g = torch.Generator().manual_seed(seed)
    signs = torch.zeros(n, SIDE, SIDE)
    for sign in signs:
        for _ in range(4):
            at, start, size = torch.randint(1, SIDE - 3, (3,), generator=g).tolist()
            if torch.rand((), generator=g) < 0.5:
                sign[at, start : start + size + 1] = 1
            else:
                sign[start : start + size + 1, at] = 1
    return signs


def make_task(signs, number):
    """Pictures and labels of the support set and of the query set."""
    g = torch.Generator().manual_seed(number)
    classes = torch.randperm(len(signs), generator=g)[:WAYS]
    y = torch.arange(WAYS).repeat(SHOTS + QUERIES)
    x = signs[classes][y].clone()
    moves = torch.randint(-1, 2, (len(y), 2), generator=g).tolist()
    for i, move in enumerate(moves):
        x[i] = x[i].roll(move, (0, 1))
    x += 0.4 * torch.randn(x.shape, generator=g)
    x, cut = x[:, None], WAYS * SHOTS
    return (x[:cut], y[:cut]), (x[cut:], y[cut:])


def make_learner():
    def block(inputs):
        return [
            nn.Conv2d(inputs, CHANNELS, 3, padding=1, bias=False),
            nn.BatchNorm2d(CHANNELS, track_running_stats=False),
            nn.ReLU(),
            nn.MaxPool2d(2),
        ]

    head = nn.Linear(CHANNELS * (SIDE // 4) ** 2, WAYS)
    return nn.Sequential(*block(1), *block(CHANNELS), nn.Flatten(), head)


def adapt(learner, rates, support, steps, second_order=False):
    """Return the learner's weights after some inner steps, by name."""
    x, y = support
    fast = dict(learner.named_parameters())
    for _ in range(steps):
        loss = F.cross_entropy(functional_call(learner, fast, (x,)), y)
        grads = torch.autograd.grad(loss, fast.values(), create_graph=second_order)
        fast = {
            name: weight - rate * grad
            for (name, weight), rate, grad in zip(
                fast.items(), rates, grads, strict=True
            )
        }
    return fast


def query_loss(learner, fast, query):
    """The loss of a task, and the part of its queries that is right."""
    x, y = query
    logits = functional_call(learner, fast, (x,))
    return F.cross_entropy(logits, y), (logits.argmax(1) == y).float().mean().item()


def outer_step(learner, rates, optimizer, signs, step, args):
    """Train on the step's tasks; return loss, accuracy and number of this rank's."""
    rank, world = dist.get_rank(), dist.get_world_size()
    trained = [*learner.parameters(), *rates.parameters()]
    first = FIRST["train"] + step * args.meta_batch
    sums = torch.zeros(3)
    optimizer.zero_grad()
    for i in range(rank, args.meta_batch, world):
        support, query = make_task(signs, first + i)
        fast = adapt(learner, rates, support, args.inner_steps, second_order=True)
        loss, accuracy = query_loss(learner, fast, query)
        (loss / args.meta_batch).backward()
        sums += torch.tensor([loss.item(), accuracy, 1.0])
    for weights in trained:
        dist.all_reduce(weights.grad)
    nn.utils.clip_grad_norm_(trained, args.clip)
    optimizer.step()
    return sums


def evaluate(learner, rates, signs, split, tasks, steps):
    """Mean accuracy over tasks after adaptation, and half of its 95% interval."""
    own = []
    for i in range(dist.get_rank(), tasks, dist.get_world_size()):
        support, query = make_task(signs, FIRST[split] + i)
        fast = adapt(learner, rates, support, steps)
        with torch.no_grad():
            own.append(query_loss(learner, fast, query)[1])
    sums = torch.tensor([sum(own), sum(a * a for a in own), len(own)])
    dist.all_reduce(sums)
    total, squares, n = sums.tolist()
    mean = total / n
    return mean, 1.96 * ((squares / n - mean**2) / n) ** 0.5


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--steps", type=int, default=5, help="outer, in an epoch")
    parser.add_argument("--meta-batch", type=int, default=8, help="of all processes")
    parser.add_argument("--inner-steps", type=int, default=2)
    parser.add_argument("--test-steps", type=int, default=4)
    parser.add_argument("--inner-lr", type=float, default=0.2)
    parser.add_argument("--lr", type=float, default=3e-2)
    parser.add_argument("--clip", type=float, default=0.5)
    parser.add_argument("--seed", type=int, default=4)
    parser.add_argument("--out", default="maml.pt")
    return parser.parse_args()


def main():
    args = parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    train, val, test = draw_signs(48, 1), draw_signs(20, 2), draw_signs(20, 3)
    torch.manual_seed(args.seed)
    learner = make_learner()
    rates = nn.ParameterList(
        nn.Parameter(torch.tensor(args.inner_lr)) for _ in learner.parameters()
    )
    optimizer = torch.optim.Adam([*learner.parameters(), *rates.parameters()], args.lr)

    best = 0.0
    for epoch in range(args.epochs):
        sums = torch.zeros(3)
        for i in range(args.steps):
            step = epoch * args.steps + i
            sums += outer_step(learner, rates, optimizer, train, step, args)
        dist.all_reduce(sums)
        loss, accuracy = (sums[:2] / sums[2]).tolist()
        now, half = evaluate(learner, rates, val, "val", VAL_TASKS, args.test_steps)
        if rank == 0:
            print(f"epoch {epoch}: loss {loss:.4f}, accuracy {accuracy:.4f}", end=", ")
            print(f"val {now:.4f} +- {half:.4f}")
        if now > best:
            best = now
            if rank == 0:
                both = {"learner": learner.state_dict(), "rates": rates.state_dict()}
                torch.save(both, args.out)
    dist.barrier()  # the file is there
    both = torch.load(args.out)
    learner.load_state_dict(both["learner"])
    rates.load_state_dict(both["rates"])
    now, half = evaluate(learner, rates, test, "test", TEST_TASKS, args.test_steps)
    if rank == 0:
        print(f"test, best of val: {now:.4f} +- {half:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
