"""Matrix factorization with sampled negatives (BPR), whose gradients are sparse.

No wrapper: each rank adds up the losses of its interactions and divides by the number
of all in the step, so the *sum* of the ranks' gradients is that of one process. Check:
    python train.py
    torchrun --nproc-per-node 2 train.py
print the same losses and hit rates.
"""

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F

USERS, ITEMS, DIM = 201, 120, 16
BATCH, NEGATIVES = 128, 4  # of all ranks; of one interaction
EPOCHS, PATIENCE = 14, 3
SEED = 5


def load_interactions():
    """Return (users, items) to train on, and one item of each user to be guessed."""
    rng = torch.Generator().manual_seed(99)
    taste = torch.randn(USERS, 4, generator=rng) @ torch.randn(4, ITEMS, generator=rng)
    liked = torch.multinomial(torch.softmax(2 * taste, 1), 16, generator=rng)
    users = torch.arange(USERS).repeat_interleave(15)
    return users, liked[:, 1:].flatten(), liked[:, 0]


class BPR(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.user = torch.nn.Embedding(USERS, DIM, sparse=True)
        self.item = torch.nn.Embedding(ITEMS, DIM, sparse=True)
        self.mix = torch.nn.Linear(DIM, DIM)
        for table in (self.user, self.item):
            torch.nn.init.normal_(table.weight, std=0.1)

    def forward(self, users, items):
        """Return the scores of items (B, N) for users (B)."""
        wanted = self.mix(self.user(users))
        return (wanted[:, None] * self.item(items)).sum(-1)


def add_up_gradients(model):
    for p in model.parameters():
        dist.all_reduce(p.grad)


def train_epoch(model, optimizers, users, items, epoch, rank, world):
    model.train()
    rng = torch.Generator().manual_seed(SEED + epoch)
    order = torch.randperm(len(users), generator=rng)
    negatives = torch.randint(ITEMS, (len(users), NEGATIVES), generator=rng)
    total = torch.zeros(())
    for start in range(0, len(order), BATCH):
        step = order[start : start + BATCH]
        mine = step[rank::world]
        good = model(users[mine], items[mine][:, None])
        bad = model(users[mine], negatives[mine])
        loss = -F.logsigmoid(good - bad).mean(1).sum() / len(step)
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        add_up_gradients(model)
        for optimizer in optimizers:
            optimizer.step()
        total += loss.detach() * len(step)
    dist.all_reduce(total)
    return total.item() / len(users)


@torch.no_grad()
def count_hits(model, mine, users, items, wanted):
    """Of the users `mine`, how many find their item among the ten best?"""
    model.eval()
    scores = model(mine, torch.arange(ITEMS).expand(len(mine), -1))
    known = torch.zeros(USERS, ITEMS, dtype=torch.bool)
    known[users, items] = True
    best = scores.masked_fill(known[mine], -torch.inf).topk(10).indices
    return (best == wanted[mine][:, None]).any(1).sum()


def main():
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    else:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    rank, world = dist.get_rank(), dist.get_world_size()
    users, items, wanted = load_interactions()

    torch.manual_seed(SEED)
    model = BPR()
    tables = torch.optim.SGD([model.user.weight, model.item.weight], lr=20.0)
    dense = torch.optim.Adam(model.mix.parameters(), lr=3e-3)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(
        tables, "max", factor=0.5, patience=0
    )

    best, bad_epochs = 0.0, 0
    for epoch in range(EPOCHS):
        loss = train_epoch(model, (tables, dense), users, items, epoch, rank, world)
        mine = torch.arange(rank, USERS, world)
        hits = count_hits(model, mine, users, items, wanted)
        all_hits = hits.clone()
        dist.all_reduce(all_hits)
        rate = all_hits.item() / USERS
        plateau.step(rate)
        if rank == 0:
            lr = tables.param_groups[0]["lr"]
            print(f"epoch {epoch}: loss {loss:.5f}, hit rate@10 {rate:.4f}, lr {lr}")
        bad_epochs = 0 if rate > best else bad_epochs + 1
        best = max(best, rate)
        if bad_epochs > PATIENCE:
            break
    if rank == 0:
        torch.save(model.state_dict(), "bpr.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
