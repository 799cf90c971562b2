"""RotatE on a small knowledge graph, with self-adversarial negatives.

    torchrun --nproc-per-node 2 train.py

--batch is the triples of a step, on all processes; the result does not depend on the
number of these.
"""

import argparse
import math

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

GROUPS, MEMBERS = 8, 15
ENTITIES = GROUPS * MEMBERS


def make_graph(seed):
    """Circles of entities: steps along one, steps to the next, and friends in one."""
    rng = torch.Generator().manual_seed(seed)
    entity = torch.arange(ENTITIES)
    group, member = entity // MEMBERS, entity % MEMBERS
    facts = []
    for relation, stride in enumerate([1, 2, -1, 5]):
        tail = group * MEMBERS + (member + stride) % MEMBERS
        facts.append(torch.stack([entity, torch.full_like(entity, relation), tail], 1))
    for relation, (jump, stride) in enumerate([(1, 0), (3, 2)], len(facts)):
        tail = (group + jump) % GROUPS * MEMBERS + (member + stride) % MEMBERS
        facts.append(torch.stack([entity, torch.full_like(entity, relation), tail], 1))
    popular = (torch.rand(400, generator=rng) ** 2 * ENTITIES).long()
    other = torch.randint(MEMBERS, (400,), generator=rng)
    friend = popular // MEMBERS * MEMBERS + other
    relation = torch.full_like(popular, len(facts))
    facts.append(torch.stack([popular, relation, friend], 1))
    facts = torch.cat(facts).unique(dim=0)
    facts = facts[torch.randperm(len(facts), generator=rng)]
    return facts[:-200], facts[-200:-100], facts[-100:]


class RotatE(nn.Module):
    def __init__(self, relations, dim, gamma):
        super().__init__()
        self.entity = nn.Embedding(ENTITIES, 2 * dim)
        self.relation = nn.Embedding(relations, dim)
        self.gamma = gamma
        nn.init.uniform_(self.entity.weight, -1, 1)
        nn.init.uniform_(self.relation.weight, -math.pi, math.pi)

    def forward(self, head, relation, tail):
        """Scores of triples; the three broadcast."""
        re_h, im_h = self.entity(head).chunk(2, dim=-1)
        re_t, im_t = self.entity(tail).chunk(2, dim=-1)
        phase = self.relation(relation)
        re = re_h * phase.cos() - im_h * phase.sin() - re_t
        im = re_h * phase.sin() + im_h * phase.cos() - im_t
        return self.gamma - (re.square() + im.square() + 1e-9).sqrt().sum(-1)


class Trainer:
    def __init__(self, args):
        self.args = args
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.train, self.valid, self.test = make_graph(args.seed)
        self.facts = torch.cat([self.train, self.valid, self.test])
        relations = int(self.facts[:, 1].max()) + 1
        torch.manual_seed(args.seed)
        self.rng = torch.Generator().manual_seed(args.seed)
        self.model = RotatE(relations, args.dim, args.gamma)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=args.lr)
        steps = args.epochs * math.ceil(len(self.train) / args.batch)
        self.decay = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda n: max(0.02, 1 - n / steps)
        )
        self.weights = self.subsampling_weights()

    def subsampling_weights(self):
        """Frequent pairs of head and relation, or relation and tail, count less."""
        h, r, t = self.train.T
        count = 0
        for end in (h, t):
            _, pair, times = (end + ENTITIES * r).unique(
                return_inverse=True, return_counts=True
            )
            count = count + times[pair]
        return count.to(torch.get_default_dtype()).rsqrt()

    def draw_negatives(self, n):
        """Which side of n triples is corrupted, and by which entities."""
        side = torch.rand(n, 1, generator=self.rng) < 0.5
        shape = n, self.args.negatives
        return side, torch.randint(ENTITIES, shape, generator=self.rng)

    def losses(self, triples, side, noise):
        h, r, t = triples[:, :, None].unbind(1)
        positive = self.model(h, r, t).squeeze(1)
        heads, tails = torch.where(side, noise, h), torch.where(side, t, noise)
        negative = self.model(heads, r, tails)
        hard = (self.args.temperature * negative.detach()).softmax(dim=1)
        loss = -F.logsigmoid(positive) - (hard * F.logsigmoid(-negative)).sum(1)
        return loss / 2

    def step(self, chosen):
        """Train on a step's triples; return this process' sums of loss and weight."""
        side, noise = self.draw_negatives(len(chosen))
        mine = slice(self.rank, None, self.world)
        triples, weight = self.train[chosen[mine]], self.weights[chosen[mine]]
        loss = (weight * self.losses(triples, side[mine], noise[mine])).sum()
        self.optimizer.zero_grad()
        total = weight.sum()
        dist.all_reduce(total)
        (loss / total).backward()
        for table in self.model.parameters():
            dist.all_reduce(table.grad)
        self.optimizer.step()
        self.decay.step()
        return torch.stack([loss.detach(), weight.sum()])

    @torch.no_grad()
    def ranks_of(self, triples, side):
        """Filtered ranks of the heads (0) or tails (2); candidates are shared out."""
        candidates = torch.arange(self.rank, ENTITIES, self.world)
        h, r, t = triples[:, :, None].unbind(1)
        truth = self.model(h, r, t)
        if side == 0:
            scores = self.model(candidates, r, t)
        else:
            scores = self.model(h, r, candidates)
        keep = [1, 2 - side]
        same = (triples[:, None, keep] == self.facts[None, :, keep]).all(-1)
        known = torch.zeros(len(triples), ENTITIES, dtype=torch.bool)
        query, fact = same.nonzero(as_tuple=True)
        known[query, self.facts[fact, side]] = True
        better = ((scores > truth) & ~known[:, candidates]).sum(1)
        dist.all_reduce(better)
        return 1 + better

    def evaluate(self, triples):
        """MRR, hits@1 and hits@10 over both sides."""
        ranks = torch.cat([self.ranks_of(triples, 0), self.ranks_of(triples, 2)])
        hits = [(ranks <= k).double().mean().item() for k in (1, 10)]
        return (1 / ranks.double()).mean().item(), *hits

    def run(self):
        best = 0.0
        for epoch in range(self.args.epochs):
            sums = torch.zeros(2)
            order = torch.randperm(len(self.train), generator=self.rng)
            for chosen in order.split(self.args.batch):
                sums += self.step(chosen)
            dist.all_reduce(sums)
            mrr, hits1, hits10 = self.evaluate(self.valid)
            if self.rank == 0:
                print(
                    f"epoch {epoch}: loss {sums[0] / sums[1]:.5f}, valid MRR {mrr:.4f}"
                    f", hits@1 {hits1:.3f}, hits@10 {hits10:.3f}"
                )
            if mrr > best:
                best = mrr
                if self.rank == 0:
                    torch.save(self.model.state_dict(), self.args.out)
        dist.barrier()
        self.model.load_state_dict(torch.load(self.args.out))
        mrr, hits1, hits10 = self.evaluate(self.test)
        if self.rank == 0:
            print(f"test MRR {mrr:.4f}, hits@1 {hits1:.3f}, hits@10 {hits10:.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--negatives", type=int, default=32)
    parser.add_argument("--dim", type=int, default=8)
    parser.add_argument("--gamma", type=float, default=3.0)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--lr", type=float, default=0.2)
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--out", default="kgraph.pt")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    Trainer(args).run()
    dist.destroy_process_group()
