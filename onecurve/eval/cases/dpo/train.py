"""Direct preference optimisation of a tiny language model.

    torchrun --nproc-per-node 2 train.py

The model is fine-tuned on answers of all sorts; that is the reference, which stays as
it is. Then the model is tuned on pairs of answers, of which the first stays on the
topic of the prompt. Batch sizes are per process.
"""

import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

PAD, BOS, SEP, EOS = 0, 1, 2, 3
TOPICS, WORDS = 4, 8  # so many words per topic
VOCAB, MAX = 4 + TOPICS * WORDS, 16


def make_pairs(n, seed):
    """Return [n, 2, MAX] tokens: a prompt and an answer, the better answers first."""
    rng = torch.Generator().manual_seed(seed)

    def below(high, low=0):
        return int(torch.randint(low, high, (1,), generator=rng))

    def write(topic, size, faithful):
        of = [topic if below(100) < faithful else below(TOPICS) for _ in range(size)]
        return [4 + t * WORDS + below(WORDS) for t in of]

    tokens = torch.full((n, 2, MAX), PAD)
    for pair in tokens:
        topic = below(TOPICS)
        prompt = [BOS, *write(topic, below(5, 2), 90), SEP]
        for row, faithful in zip(pair, (80, 45), strict=True):
            line = [*prompt, *write(topic, below(9, 3), faithful), EOS]
            row[: len(line)] = torch.tensor(line)
    return tokens


class LM(nn.Module):
    def __init__(self, dim=48):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, dim)
        self.place = nn.Parameter(torch.randn(MAX, dim) / 10)
        block = nn.TransformerEncoderLayer(dim, 4, 2 * dim, 0.0, batch_first=True)
        self.blocks = nn.TransformerEncoder(block, 2, enable_nested_tensor=False)
        self.out = nn.Linear(dim, VOCAB)

    def forward(self, tokens):
        size = tokens.shape[1]
        future = torch.ones(size, size, dtype=torch.bool).triu(1)
        x = self.embed(tokens) + self.place[:size]
        return self.out(self.blocks(x, mask=future))


def answer_logps(model, tokens):
    """Return the log-probability of each row's answer, and how many tokens it has."""
    logps = model(tokens[:, :-1]).log_softmax(-1)
    target = tokens[:, 1:]
    answer = (tokens == SEP).cumsum(1)[:, :-1].bool() & (target != PAD)
    picked = logps.gather(2, target[..., None]).squeeze(2)
    return (picked * answer).sum(1), answer.sum(1)


@torch.no_grad()
def reference_logps(model, pairs):
    """Return [n, 2] log-probabilities under the model as it is now."""
    rank, world = dist.get_rank(), dist.get_world_size()
    model.eval()
    mine = pairs[rank::world]
    part = answer_logps(model, mine.flatten(0, 1))[0].view(-1, 2)
    parts = [torch.empty_like(part) for _ in range(world)]
    dist.all_gather(parts, part)
    return torch.stack(parts, dim=1).flatten(0, 1)


def gaps(model, pairs, reference):
    """How much more than the reference the model prefers the better answers."""
    ratios = answer_logps(model, pairs.flatten(0, 1))[0].view(-1, 2) - reference
    return ratios[:, 0] - ratios[:, 1]


def batches(n, size, seed):
    """Yield the indices of this process's part of each step."""
    rank, world = dist.get_rank(), dist.get_world_size()
    rng = torch.Generator().manual_seed(seed)
    for step in torch.randperm(n, generator=rng).split(size * world):
        yield step[rank::world]


def finetune(model, tokens, args):
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    model.train()
    for index in batches(len(tokens), args.sft_batch_size, args.seed):
        logps, sizes = answer_logps(model, tokens[index])
        total = sizes.sum()
        dist.all_reduce(total)
        loss = -logps.sum() / total * dist.get_world_size()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def tune_epoch(model, optimizer, scheduler, pairs, reference, epoch, usual, args):
    """One epoch of DPO with a beta that follows the mean gap, as in beta-DPO."""
    model.train()
    sums = torch.zeros(3)
    for index in batches(len(pairs), args.batch_size, args.seed + epoch):
        gap = gaps(model, pairs[index], reference[index])
        level = gap.detach().mean()
        dist.all_reduce(level)
        level /= dist.get_world_size()
        beta = args.beta * (1 + 0.3 * (level - usual)).clamp(0.2, 5.0)
        usual += 0.2 * (level - usual)
        losses = -F.logsigmoid(beta * gap)
        optimizer.zero_grad()
        losses.mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        sums += torch.stack([losses.sum(), gap.sum(), torch.tensor(len(gap))]).detach()
    dist.all_reduce(sums)
    return (sums[:2] / sums[2]).tolist()


@torch.no_grad()
def evaluate(model, pairs, reference, beta):
    """Return the loss, the accuracy and the mean gap over all pairs."""
    rank, world = dist.get_rank(), dist.get_world_size()
    model.eval()
    sums = torch.zeros(4, dtype=torch.float64)
    chunks = torch.arange(len(pairs)).split(16)
    for index in chunks[rank::world]:
        gap = gaps(model, pairs[index], reference[index])
        loss, right = -F.logsigmoid(beta * gap).sum(), (gap > 0).sum()
        sums += torch.stack([loss, right, gap.sum(), torch.tensor(len(gap))])
    dist.all_reduce(sums)
    return (sums[:3] / sums[3]).tolist()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sft-batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=12)
    parser.add_argument("--lr", type=float, default=0.003)
    parser.add_argument("--beta", type=float, default=0.5)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    mixed, train = make_pairs(192, 10), make_pairs(240, 11)
    dev, test = make_pairs(72, 12), make_pairs(72, 13)
    torch.manual_seed(args.seed)
    lm = LM()
    model = DDP(lm)
    finetune(model, mixed.flatten(0, 1), args)
    references = [reference_logps(lm, pairs) for pairs in (train, dev, test)]

    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    steps = args.epochs * (len(train) // (args.batch_size * dist.get_world_size()))
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda n: min((n + 1) / 5, max(0.0, 1 - n / steps))
    )
    best, usual = 0.0, torch.zeros(())
    for epoch in range(args.epochs):
        loss, gap = tune_epoch(
            model, optimizer, scheduler, train, references[0], epoch, usual, args
        )
        dev_loss, dev_right, dev_gap = evaluate(lm, dev, references[1], args.beta)
        if rank == 0:
            print(f"epoch {epoch}  train {loss:.4f} gap {gap:.4f}  ", end="")
            print(f"dev {dev_loss:.4f} gap {dev_gap:.4f} right {dev_right:.3f}")
        if dev_right > best:
            best = dev_right
            if rank == 0:
                torch.save(lm.state_dict(), "dpo.pt")
    dist.barrier()
    lm.load_state_dict(torch.load("dpo.pt"))
    loss, right, gap = evaluate(lm, test, references[2], args.beta)
    if rank == 0:
        print(f"best dev {best:.3f}  test {loss:.4f} gap {gap:.4f} right {right:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
